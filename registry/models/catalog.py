"""Models, their versions, and the aliases that point at one of them."""

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Now

NAME_PATTERN = r"\A[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?\Z"
NAME = RegexValidator(NAME_PATTERN,
                      "Use 1 to 64 lower-case letters, digits, dots, dashes and underscores; "
                      "begin and end with a letter or digit.")


class Kind(models.TextChoices):
    CHAT = "chat", "Chat"
    EMBEDDING = "embedding", "Embedding"
    RERANK = "rerank", "Rerank"
    ADAPTER = "adapter", "LoRA adapter"


class Access(models.TextChoices):
    EVERYONE = "everyone", "Everyone who is signed in"
    GROUPS = "groups", "Members of some groups"
    ADMINISTRATORS = "administrators", "Administrators only"


class Model(models.Model):
    """A line of versions, such as `smollm2`. `access` says who may see and use them; administrators always may."""

    name = models.CharField(max_length=64, unique=True, validators=[NAME])
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.CHAT)
    description = models.TextField(blank=True)
    tags = models.CharField(max_length=500, blank=True, help_text="Words with spaces between them.")
    access = models.CharField(max_length=16, choices=Access.choices, default=Access.EVERYONE)
    groups = models.ManyToManyField(Group, blank=True, related_name="+", help_text="For access by groups.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def tag_list(self) -> list[str]:
        return self.tags.split()


class VersionState(models.TextChoices):
    VERIFYING = "verifying", "Verifying"
    VERIFIED = "verified", "Verified, not published"
    READY = "ready", "Ready"
    REJECTED = "rejected", "Rejected"
    ARCHIVED = "archived", "Archived"
    DELETED = "deleted", "Deleted"


class Version(models.Model):
    """One complete set of artifacts. Its number is never reused and, once verified, its artifacts never change.

    A deleted one keeps its row, without artifacts, for the conversations and the history that name it. `parent` is the
    version that it was made from: quantised or tuned from, or for an adapter the base that it is loaded beside.
    """

    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=VersionState.choices, default=VersionState.VERIFYING)
    reason = models.TextField(blank=True, help_text="Why it was rejected.")
    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="children")
    context_length = models.PositiveIntegerField(default=0, help_text="Most tokens of prompt and reply together.")
    parameters = models.PositiveBigIntegerField(default=0, help_text="Parameters, tied embeddings counted once.")
    facts = models.JSONField(default=dict, blank=True, help_text="What verification learnt of the architecture.")
    checks = models.JSONField(default=dict, blank=True, help_text="registry.checks.Report.to_dict().")
    sampling = models.JSONField(default=dict, blank=True,
                                help_text="Sampling defaults, from the model's generation configuration.")
    vocabulary_sha256 = models.CharField(max_length=64, blank=True)
    licence = models.CharField(max_length=200, blank=True)
    tags = models.CharField(max_length=500, blank=True, help_text="Words with spaces between them.")
    notes = models.TextField(blank=True)
    source = models.CharField(max_length=500, blank=True, help_text="Where it was imported from.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["model", "-number"]
        constraints = [models.UniqueConstraint(fields=["model", "number"], name="version_number_once")]
        indexes = [models.Index(fields=["state", "model", "-number"], name="version_state_model")]

    def __str__(self) -> str:
        return f"{self.model.name}:{self.number}"

    @property
    def tag_list(self) -> list[str]:
        return self.tags.split()


class Alias(models.Model):
    """A name of a model's that points at one of its versions, such as `smollm2@production`; moved, and moved back."""

    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="aliases")
    name = models.CharField(max_length=64, validators=[NAME])
    version = models.ForeignKey(Version, on_delete=models.PROTECT, related_name="aliases")
    previous = models.ForeignKey(Version, on_delete=models.PROTECT, null=True, blank=True, related_name="+",
                                 help_text="Where it pointed before it was last moved.")
    moved_at = models.DateTimeField(db_default=Now())
    moved_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True,
                                 related_name="+")

    class Meta:
        ordering = ["model", "name"]
        verbose_name_plural = "aliases"
        constraints = [models.UniqueConstraint(fields=["model", "name"], name="alias_once_per_model")]

    def __str__(self) -> str:
        return f"{self.model.name}@{self.name}"

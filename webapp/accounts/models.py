"""Who may call the API and how much: keys, limits of people and groups, and what was used."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Now


class Scope(models.TextChoices):
    """What a key opens: replies, vectors and scores, or the counts of the whole site."""

    CHAT = "chat", "Chat and completions"
    EMBED = "embed", "Embeddings, rerank and score"
    ADMIN = "admin", "Metrics of the site"


class ApiKey(models.Model):
    """A key of one person. Only the SHA-256 of it is stored: the secret has 256 random bits, so no slow hash is needed.

    `start` is how it begins, for people to tell their keys apart. A revoked key stays, since usage rows name it.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=64)
    scopes = models.JSONField(default=list, help_text="A list of Scope values.")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    start = models.CharField(max_length=20, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.start}…)"


class Quota(models.Model):
    """A limit of one person, or of one group, whose members share it. Empty numbers are no limit.

    Tokens are those of prompts and replies together, cached ones included.
    """

    user = models.OneToOneField(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE,
                                related_name="quota")
    group = models.OneToOneField("auth.Group", null=True, blank=True, on_delete=models.CASCADE, related_name="quota")
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True)
    tokens_per_minute = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(
            name="quota_of_user_or_group",
            condition=models.Q(user__isnull=False, group__isnull=True) | models.Q(user__isnull=True,
                                                                                  group__isnull=False))]

    def __str__(self) -> str:
        return f"limits of {self.user or self.group}"


class Usage(models.Model):
    """What one request used. Written in the transaction that ends it; `model` outlives the version's row."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="usage")
    api_key = models.ForeignKey(ApiKey, null=True, blank=True, on_delete=models.SET_NULL, related_name="usage")
    version = models.ForeignKey("registry.Version", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    model = models.CharField(max_length=200, help_text="Name and version, such as smollm2:1; an adapter behind a plus.")
    endpoint = models.CharField(max_length=32)
    request_id = models.CharField(max_length=64, blank=True)
    prompt_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0, help_text="Of the prompt's, those taken from the cache.")
    output_tokens = models.PositiveIntegerField(default=0)
    seconds = models.FloatField(default=0.0, help_text="From being asked for to its end.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["user", "-created_at"], name="usage_user_created")]
        verbose_name_plural = "usage"

    def __str__(self) -> str:
        return f"{self.endpoint} of {self.user} on {self.model}"

"""The registry's tables: model → versions → artifacts → blobs, and the deployments that wish a version loaded."""

from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Now

NAME = RegexValidator(r"\A[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?\Z",
                      "Use 1 to 64 lower-case letters, digits, dots, dashes and underscores; "
                      "begin and end with a letter or digit.")


class Kind(models.TextChoices):
    CHAT = "chat", "Chat"
    EMBEDDING = "embedding", "Embedding"
    RERANK = "rerank", "Rerank"


class Model(models.Model):
    """A named line of versions, such as `smollm2`."""

    name = models.CharField(max_length=64, unique=True, validators=[NAME])
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.CHAT)
    description = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class VersionState(models.TextChoices):
    DRAFT = "draft", "Draft"
    VERIFYING = "verifying", "Verifying"
    READY = "ready", "Ready"
    REJECTED = "rejected", "Rejected"
    ARCHIVED = "archived", "Archived"


class Version(models.Model):
    """One complete set of artifacts. Its number is never reused and, once ready, its artifacts never change."""

    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=VersionState.choices, default=VersionState.DRAFT)
    reason = models.TextField(blank=True, help_text="Why it was rejected.")
    context_length = models.PositiveIntegerField(default=0, help_text="Most tokens of prompt and reply together.")
    parameters = models.PositiveBigIntegerField(default=0, help_text="Parameters, tied embeddings counted once.")
    source = models.CharField(max_length=500, blank=True, help_text="Where it was imported from.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["model", "-number"]
        constraints = [models.UniqueConstraint(fields=["model", "number"], name="version_number_once")]

    def __str__(self) -> str:
        return f"{self.model.name}:{self.number}"


class Role(models.TextChoices):
    WEIGHTS = "weights", "Weights"
    WEIGHTS_INDEX = "weights_index", "Weights index"
    TOKENIZER = "tokenizer", "Tokenizer"
    CONFIG = "config", "Configuration"
    GENERATION_CONFIG = "generation_config", "Generation configuration"
    CHAT_TEMPLATE = "chat_template", "Chat template"
    QUANTISATION_CONFIG = "quantisation_config", "Quantisation configuration"
    LORA = "lora", "LoRA adapter"
    CARD = "card", "Model card"
    OTHER = "other", "Other"


class Blob(models.Model):
    """Content stored once, named by its SHA-256 under PARLEY_HOME/blobs."""

    sha256 = models.CharField(primary_key=True, max_length=64, validators=[RegexValidator(r"\A[0-9a-f]{64}\Z")])
    size = models.PositiveBigIntegerField()
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return self.sha256[:12]


class Artifact(models.Model):
    """A file of a version: its path inside the version, what it is for, and its content."""

    version = models.ForeignKey(Version, on_delete=models.CASCADE, related_name="artifacts")
    path = models.CharField(max_length=255)
    role = models.CharField(max_length=32, choices=Role.choices)
    blob = models.ForeignKey(Blob, on_delete=models.PROTECT, related_name="artifacts")

    class Meta:
        ordering = ["path"]
        constraints = [models.UniqueConstraint(fields=["version", "path"], name="artifact_path_once")]

    def __str__(self) -> str:
        return f"{self.version}/{self.path}"


class Node(models.Model):
    """A machine with a node worker, as it last reported itself."""

    name = models.CharField(max_length=128, unique=True)
    device = models.CharField(max_length=128, blank=True)
    memory_bytes = models.PositiveBigIntegerField(default=0)
    seen_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class DeploymentState(models.TextChoices):
    UNLOADED = "unloaded", "Not loaded"
    LOADING = "loading", "Loading"
    LOADED = "loaded", "Loaded"
    UNLOADING = "unloading", "Unloading"
    FAILED = "failed", "Failed"


class Deployment(models.Model):
    """The wish that a version be loaded, and what the node that holds it last said of it.

    `node` pins it to one machine by name; empty takes any. `held_by` and `held_until` are a lease on the database's
    clock: the node that holds it renews it, and another may take it over once it has run out.
    """

    version = models.ForeignKey(Version, on_delete=models.PROTECT, related_name="deployments")
    node = models.CharField(max_length=128, blank=True)
    wanted = models.BooleanField(default=True)
    mode = models.CharField(max_length=16, default="int8", help_text="Numeric recipe: int8 or float32.")
    max_model_len = models.PositiveIntegerField(null=True, blank=True, help_text="Empty takes the model's own.")
    max_num_seqs = models.PositiveIntegerField(default=32)
    state = models.CharField(max_length=16, choices=DeploymentState.choices, default=DeploymentState.UNLOADED)
    reason = models.TextField(blank=True, help_text="Why the last load failed.")
    phase = models.CharField(max_length=16, blank=True)
    progress_done = models.PositiveBigIntegerField(default=0)
    progress_total = models.PositiveBigIntegerField(default=0)
    facts = models.JSONField(default=dict, blank=True, help_text="What the engine said when it became ready.")
    held_by = models.CharField(max_length=128, blank=True)
    held_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["version", "node"]
        constraints = [models.UniqueConstraint(fields=["version", "node"], name="deployment_once_per_node")]

    def __str__(self) -> str:
        return f"{self.version} on {self.node or 'any machine'}"

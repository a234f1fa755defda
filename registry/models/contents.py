"""What a version is made of: artifacts, each a path and a role over content that is stored once."""

from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Now

from registry.models.catalog import Version


class Role(models.TextChoices):
    WEIGHTS = "weights", "Weights"
    WEIGHTS_INDEX = "weights_index", "Weights index"
    TOKENIZER = "tokenizer", "Tokenizer"
    CONFIG = "config", "Configuration"
    GENERATION_CONFIG = "generation_config", "Generation configuration"
    CHAT_TEMPLATE = "chat_template", "Chat template"
    QUANTISATION_CONFIG = "quantisation_config", "Quantisation configuration"
    LORA = "lora", "LoRA adapter"
    COMPILED_ENGINE = "compiled_engine", "Compiled engine"
    CARD = "card", "Model card"
    OTHER = "other", "Other"


class Blob(models.Model):
    """Content stored once, named by its SHA-256 under PARLEY_BLOBS."""

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

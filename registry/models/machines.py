"""Where versions are loaded: the machines that report themselves, and the deployments that wish a version loaded."""

from django.db import models
from django.db.models.functions import Now

from registry.models.catalog import Version


class Node(models.Model):
    """A machine with a node worker, as it last reported itself. It is alive while `seen_at` is some seconds old.

    devices: a list of {"name", "kind" ("cpu" or "cuda"), "index", "memory_bytes", "free_bytes"} and, as far as they are
    known, "bandwidth" and "flops" as inference.planner.Device has them; the first is the one that models are loaded on,
    and `device`, `memory_bytes` and `free_bytes` repeat it.
    """

    name = models.CharField(max_length=128, unique=True)
    host = models.CharField(max_length=255, blank=True)
    device = models.CharField(max_length=128, blank=True)
    devices = models.JSONField(default=list, blank=True)
    memory_bytes = models.PositiveBigIntegerField(default=0)
    free_bytes = models.PositiveBigIntegerField(default=0)
    version = models.CharField(max_length=64, blank=True, help_text="The Parley that runs there.")
    started_at = models.DateTimeField(null=True, blank=True)
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
    node = models.CharField(max_length=128, blank=True, help_text="A machine's name; empty takes any.")
    wanted = models.BooleanField(default=True)
    device = models.CharField(max_length=8, blank=True, choices=[("cpu", "Processor"), ("cuda", "CUDA")],
                              help_text="Empty takes the machine's accelerator where it has one.")
    mode = models.CharField(max_length=16, default="int8", help_text="Numeric recipe of the engine.")
    max_model_len = models.PositiveIntegerField(null=True, blank=True, help_text="Empty takes the model's own.")
    max_num_seqs = models.PositiveIntegerField(default=64, help_text="Most requests in one step.")
    max_num_batched_tokens = models.PositiveIntegerField(null=True, blank=True,
                                                         help_text="Tokens of one step; empty takes the engine's own.")
    kv_cache_bytes = models.PositiveBigIntegerField(null=True, blank=True, help_text="Empty fits the limits above.")
    kv_dtype = models.CharField(max_length=16, blank=True, help_text="Empty takes the engine's own.")
    adapters = models.ManyToManyField(Version, blank=True, related_name="+",
                                      help_text="LoRA adapters of this version to load beside it.")
    idle_seconds = models.PositiveIntegerField(null=True, blank=True,
                                               help_text="Unload after so long without work; empty never does.")
    load_at_start = models.BooleanField(default=False, help_text="Load whenever a node worker starts.")
    load_on_pick = models.BooleanField(default=True, help_text="Load when somebody uses it while it isn't loaded.")
    state = models.CharField(max_length=16, choices=DeploymentState.choices, default=DeploymentState.UNLOADED)
    reason = models.TextField(blank=True, help_text="Why the last load failed, or why it was unloaded.")
    force_unload = models.BooleanField(default=False, help_text="Stop what runs instead of waiting for its end.")
    phase = models.CharField(max_length=16, blank=True)
    progress_done = models.PositiveBigIntegerField(default=0)
    progress_total = models.PositiveBigIntegerField(default=0)
    plan = models.JSONField(default=dict, blank=True, help_text="What the planner predicted for these settings.")
    facts = models.JSONField(default=dict, blank=True, help_text="What the engine measured when it became ready.")
    held_by = models.CharField(max_length=128, blank=True)
    held_until = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True, help_text="When it last had work.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["version", "node"]
        constraints = [models.UniqueConstraint(fields=["version", "node"], name="deployment_once_per_node")]

    def __str__(self) -> str:
        return f"{self.version} on {self.node or 'any machine'}"

"""A generation: one attempt-counted, leased run of a prompt through a version's engine. The row is the truth."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models.functions import Now


class GenerationState(models.TextChoices):
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    STOPPED = "stopped", "Stopped"
    FAILED = "failed", "Failed"


ENDED = (GenerationState.DONE, GenerationState.STOPPED, GenerationState.FAILED)


class Phase(models.TextChoices):
    """What a running generation is doing; queued and loading are read off the row's and the deployment's state."""

    NONE = "", ""
    WAITING = "waiting", "Waiting for the engine"
    PREFILL = "prefill", "Reading the prompt"
    DECODING = "decoding", "Writing"


class Generation(models.Model):
    """One reply, or one completion asked for by a program.

    `attempt` counts claims; whoever writes names the attempt that it holds, and a write under an older one changes
    nothing. `output_ids`, `text` and `output_count` are the last checkpoint and, once ended, the whole.
    `claimed_count` is what `output_count` was when the attempt began; `interruptions` counts the attempts in a row that
    were cut off without adding a token, so that a request that kills its engine isn't tried for ever.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="generations")
    version = models.ForeignKey("registry.Version", on_delete=models.PROTECT, related_name="+")
    adapter = models.ForeignKey("registry.Version", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=16, choices=GenerationState.choices, default=GenerationState.QUEUED)
    phase = models.CharField(max_length=16, choices=Phase.choices, default=Phase.NONE, blank=True)
    attempt = models.PositiveIntegerField(default=0)
    claimed_count = models.PositiveIntegerField(default=0)
    interruptions = models.PositiveIntegerField(default=0)
    stop_requested = models.BooleanField(default=False)
    lease_until = models.DateTimeField(null=True, blank=True)
    queued_at = models.DateTimeField(db_default=Now(), help_text="Last time it was put in the queue.")

    prompt_ids = models.JSONField()
    params = models.JSONField(help_text="inference.spec.SamplingParams, seed included.")
    mode = models.CharField(max_length=16, blank=True, help_text="Numeric recipe of the engine that ran it.")
    output_ids = models.JSONField(default=list)
    output_count = models.PositiveIntegerField(default=0)
    text = models.TextField(blank=True)
    finish_reason = models.CharField(max_length=16, blank=True)
    error = models.TextField(blank=True)

    prompt_tokens = models.PositiveIntegerField(default=0)
    prefill_done = models.PositiveIntegerField(default=0, help_text="Prompt tokens computed so far.")
    cached_tokens = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now())
    claimed_at = models.DateTimeField(null=True, blank=True)
    first_token_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    timings = models.JSONField(default=dict, blank=True, help_text="Seconds of each phase inside the engine.")

    # Of what a program asked for; empty for the chat page's.
    api_key = models.ForeignKey("accounts.ApiKey", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    endpoint = models.CharField(max_length=32, blank=True, help_text="chat.completions or completions.")
    request_id = models.CharField(max_length=64, blank=True, db_index=True)
    counts_prompt = models.BooleanField(default=True, help_text="Of the replies to one prompt, just one counts it.")
    reply_to = models.CharField(max_length=64, blank=True, help_text="Redis channel on which somebody waits for it.")

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["state", "lease_until"], name="generation_state_lease"),
            models.Index(fields=["version", "state", "created_at"], name="generation_version_state"),
            models.Index(fields=["owner", "-created_at"], name="generation_owner_created"),
        ]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

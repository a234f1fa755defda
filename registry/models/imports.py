"""Models on their way in: browser uploads, and the jobs that copy, verify and publish."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from registry.models.catalog import Kind, Version


class UploadState(models.TextChoices):
    RECEIVING = "receiving", "Receiving"
    FINISHED = "finished", "Received"
    CANCELLED = "cancelled", "Cancelled"


class Upload(models.Model):
    """Files that a browser sends in chunks. Which chunks are there, the chunk files on shared storage say.

    files: a list of {"path", "size" in bytes, "sha256"}; the digest is filled in when the upload is finished.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="uploads")
    name = models.CharField(max_length=64)
    files = models.JSONField()
    chunk_bytes = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=UploadState.choices, default=UploadState.RECEIVING)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    touched_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({len(self.files)} files)"


class ImportState(models.TextChoices):
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    REFUSED = "refused", "Refused"
    CANCELLED = "cancelled", "Cancelled"


class ImportJob(models.Model):
    """One model being taken in from a folder, a GGUF file or an upload, in the background.

    phase: copying, verifying, publishing; progress in bytes. `version` is set once verification begins, and is the one
    with the same content when there is one already. `held_by` and `held_until` are a lease on the database's clock.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True,
                              related_name="+")
    name = models.CharField(max_length=64)
    kind = models.CharField(max_length=16, choices=Kind.choices, blank=True, help_text="Empty: the files say it.")
    path = models.CharField(max_length=500, blank=True, help_text="A folder or a GGUF file under an import root.")
    upload = models.OneToOneField(Upload, on_delete=models.SET_NULL, null=True, blank=True, related_name="job")
    parent = models.ForeignKey(Version, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    publish = models.BooleanField(default=True, help_text="Publish at once when every check passes.")
    state = models.CharField(max_length=16, choices=ImportState.choices, default=ImportState.QUEUED)
    reason = models.TextField(blank=True, help_text="Why it was refused.")
    phase = models.CharField(max_length=16, blank=True)
    progress_done = models.PositiveBigIntegerField(default=0)
    progress_total = models.PositiveBigIntegerField(default=0)
    checks = models.JSONField(default=dict, blank=True, help_text="registry.checks.Report.to_dict(), so far.")
    version = models.ForeignKey(Version, on_delete=models.SET_NULL, null=True, blank=True, related_name="imports")
    attempt = models.PositiveIntegerField(default=0)
    cancel_requested = models.BooleanField(default=False)
    held_by = models.CharField(max_length=128, blank=True)
    held_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [models.Index(fields=["state", "held_until"], name="import_state_lease")]

    def __str__(self) -> str:
        return f"{self.name} from {self.path or 'an upload'}"

"""The audit log: who did what to which model or version, and when. Lines are added, never changed."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from registry.models.catalog import Model, Version


class Action(models.TextChoices):
    IMPORT = "import", "Began an import"
    REFUSE = "refuse", "Import was refused"
    VERIFY = "verify", "Verified"
    PUBLISH = "publish", "Published"
    DISCARD = "discard", "Discarded"
    ARCHIVE = "archive", "Archived"
    RESTORE = "restore", "Restored from the archive"
    DELETE = "delete", "Deleted"
    EDIT = "edit", "Edited"
    ACCESS = "access", "Changed who may use it"
    ALIAS = "alias", "Moved an alias"
    ALIAS_REMOVE = "alias_remove", "Removed an alias"
    LOAD = "load", "Asked for loading"
    UNLOAD = "unload", "Asked for unloading"
    SETTINGS = "settings", "Changed how it is loaded"


class AuditEntry(models.Model):
    """One line. `actor` and `subject` are words that stay readable when the rows behind them are gone."""

    at = models.DateTimeField(db_default=Now(), editable=False)
    action = models.CharField(max_length=16, choices=Action.choices)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True,
                             related_name="+")
    actor = models.CharField(max_length=150)
    subject = models.CharField(max_length=150)
    model = models.ForeignKey(Model, on_delete=models.SET_NULL, null=True, blank=True, related_name="audit")
    version = models.ForeignKey(Version, on_delete=models.SET_NULL, null=True, blank=True, related_name="audit")
    words = models.CharField(max_length=1000, blank=True, help_text="What changed, in words.")

    class Meta:
        ordering = ["-at", "-pk"]
        verbose_name_plural = "audit entries"
        indexes = [models.Index(fields=["model", "-at"], name="audit_model_at"),
                   models.Index(fields=["version", "-at"], name="audit_version_at")]

    def __str__(self) -> str:
        return f"{self.actor}: {self.get_action_display()} {self.subject}"

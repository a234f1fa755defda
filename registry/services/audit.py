"""Adds lines to the audit log, inside the transaction of what they tell of."""

from registry.access import Viewer
from registry.models import Action, AuditEntry, Model, Version

SITE = "the site"


def audit_record(*, by: Viewer | None, action: Action, subject: Model | Version | str, words: str = "") -> AuditEntry:
    """Write who did what. by: None is the site itself, such as its command line. words: what changed, if needed."""
    version = subject if isinstance(subject, Version) else None
    model = version.model if version else subject if isinstance(subject, Model) else None
    user = by if by is not None and by.is_authenticated else None
    return AuditEntry.objects.create(
        action=action, user=user, actor=user.get_username()[:150] if user else SITE,
        subject=str(subject)[:150], model=model, version=version, words=words[:1000])

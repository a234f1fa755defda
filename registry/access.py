"""Who may use and who may change what: the one place that says so, for listing as for use."""

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Q

from registry.errors import NotAllowed
from registry.models import Access, Model

Viewer = User | AnonymousUser


def is_administrator(viewer: Viewer | None) -> bool:
    """Say whether somebody may change the registry. None is the site itself: its command line and its workers."""
    return viewer is None or bool(viewer.is_authenticated and viewer.is_active and viewer.is_staff)


def require_administrator(by: Viewer | None) -> None:
    """Raises NotAllowed."""
    if not is_administrator(by):
        raise NotAllowed("Only administrators may change models.")


def usable_models(viewer: Viewer) -> Q:
    """The condition on Model that viewer may see and use it; nobody signed in fulfils none."""
    if not (viewer.is_authenticated and viewer.is_active):
        return Q(pk__in=[])
    if is_administrator(viewer):
        return Q()
    in_groups = Model.objects.filter(access=Access.GROUPS, groups__in=viewer.groups.values("pk"))
    return Q(access=Access.EVERYONE) | Q(pk__in=in_groups.values("pk"))

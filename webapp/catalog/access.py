"""Who may see and do what on the registry's pages: signed-in people look, administrators act, all else is not there."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist
from django.http import Http404, HttpRequest, HttpResponseBase, JsonResponse

from registry.access import is_administrator

View = Callable[..., HttpResponseBase]


class SignedIn(HttpRequest):
    """A request of somebody who has signed in."""

    user: User


def members(view: View) -> View:
    """Let in who has signed in. What the viewer may not see answers as what does not exist does: 404."""

    @login_required
    @wraps(view)
    def checked(request: SignedIn, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(request, *args, **kwargs)
        except ObjectDoesNotExist:
            raise Http404("There is no such page.") from None

    return checked


def administrators(view: View) -> View:
    """Let in administrators; for everybody else the page does not exist."""

    @wraps(view)
    def checked(request: SignedIn, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not is_administrator(request.user):
            raise Http404("There is no such page.")
        return view(request, *args, **kwargs)

    return members(checked)


def administrators_json(view: View) -> View:
    """As `administrators`, for scripts: 401 in JSON where nobody is signed in, 404 in JSON otherwise."""

    @wraps(view)
    def checked(request: SignedIn, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return JsonResponse({"errors": {"__all__": ["Sign in first."]}}, status=401)
        try:
            if is_administrator(request.user):
                return view(request, *args, **kwargs)
        except ObjectDoesNotExist:
            pass
        return JsonResponse({"errors": {"__all__": ["There is no such thing."]}}, status=404)

    return checked

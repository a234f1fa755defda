"""The API's pages: examples to copy, and the browsable reference. The API itself is in webapp.api.asgi."""

from csp.decorators import csp_update
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from registry.selectors import versions_for
from webapp.api.examples import examples


class SignedIn(HttpRequest):
    """A request that `login_required` has let through."""

    user: User


@login_required
@require_safe
def docs(request: SignedIn) -> HttpResponse:
    """Show how to call the API, with the host by which the reader reached this page."""
    versions = list(versions_for(viewer=request.user))
    names = {kind: next((row.model.name for row in versions if row.model.kind == kind), f"your-{kind}-model")
             for kind in ("chat", "embedding")}
    base = f"{request.scheme}://{request.get_host()}"
    return render(request, "api/docs.html", {"section": "api", "versions": versions,
                                             "examples": examples(base=base, **names)})


@login_required
@csp_update({"img-src": ["data:"]})  # type: ignore[untyped-decorator]  # the icons in Swagger UI's own style sheet
@require_safe
def reference(request: SignedIn) -> HttpResponse:
    """Show every endpoint and field, with a way to try them."""
    return render(request, "api/reference.html", {"section": "api"})

"""Health endpoints for load balancers and monitors; no sign-in."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from webapp.ops.selectors import readiness


@require_safe
@never_cache
def healthz(request: HttpRequest) -> HttpResponse:
    """This process answers; it says nothing of the parts behind it."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when the database and Redis answer, else 503; the body says how each of them is."""
    parts = readiness()
    return JsonResponse(parts, status=200 if set(parts.values()) == {"ok"} else 503)

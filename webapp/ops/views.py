"""Endpoints for load balancers and monitors, and the icon that browsers ask for unasked; no sign-in."""

import redis
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.templatetags.static import static
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from webapp.ops.selectors import may_read_metrics, readiness
from webapp.serving.metrics import metrics_text


@require_safe
def favicon(request: HttpRequest) -> HttpResponse:
    """Lead to the site's icon from where browsers look on pages that don't name it, such as the admin's."""
    return redirect(static("icons/parley.svg"))


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


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Counts per model for Prometheus: to this machine itself, and to whoever shows a key with the scope `admin`."""
    if not may_read_metrics(request):
        return HttpResponse("Send `Authorization: Bearer` with an API key that has the scope admin.\n", status=401,
                            content_type="text/plain", headers={"www-authenticate": "Bearer"})
    try:
        return HttpResponse(metrics_text(), content_type=CONTENT_TYPE_PLAIN_0_0_4)
    except redis.RedisError:
        return HttpResponse("Redis does not answer.\n", status=503, content_type="text/plain")

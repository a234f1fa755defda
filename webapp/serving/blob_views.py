"""Gives nodes the registry's content by SHA-256, in bounded ranges: Daphne buffers what it can't send yet."""

import re

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_GET

from registry.blobs import blob_range
from registry.models import Blob

MAX_RANGE_BYTES = 8 * 1024 * 1024
RANGE = re.compile(r"\Abytes=(\d{1,18})-(\d{1,18})\Z")


@require_GET
def blob(request: HttpRequest, sha256: str) -> HttpResponse:
    """One range of a blob, for a node that knows PARLEY_NODE_TOKEN; 404 for all others and while no token is set."""
    token = settings.PARLEY_NODE_TOKEN
    if not token or not constant_time_compare(request.headers.get("Authorization", ""), f"Bearer {token}"):
        return HttpResponse(status=404)
    wanted = RANGE.match(request.headers.get("Range", ""))
    if wanted is None:
        return HttpResponse("Ask for one range of bytes.", status=416, content_type="text/plain")
    start, end = int(wanted[1]), int(wanted[2])
    if not start <= end < start + MAX_RANGE_BYTES:
        return HttpResponse(f"A range has at most {MAX_RANGE_BYTES} bytes.", status=416, content_type="text/plain")
    try:
        size = Blob.objects.get(pk=sha256).size
        body = blob_range(sha256, start=start, end=end)
    except (Blob.DoesNotExist, OSError):
        return HttpResponse(status=404)
    if not body:
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{size}"})
    return HttpResponse(body, status=206, content_type="application/octet-stream", headers={
        "Content-Range": f"bytes {start}-{start + len(body) - 1}/{size}", "Accept-Ranges": "bytes",
        "Cache-Control": "private, immutable"})

"""The register wizard: pick a source, watch it being checked, see the plan, publish; and the uploads it makes."""

import json
import uuid
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from registry import overview
from registry.errors import RegistryRefused, UploadRefused
from registry.paths import import_sources
from registry.selectors import version_resolve
from registry.services import import_jobs, uploads
from webapp.catalog.access import SignedIn, administrators, administrators_json
from webapp.catalog.actions import acted
from webapp.catalog.forms import ImportForm, first_error
from webapp.catalog.views import live_page
from webapp.serving.dispatch import import_dispatch

if TYPE_CHECKING:
    from registry.models import ImportJob, Upload, Version

MAX_FRAME_BYTES = 2 * 1024 * 1024
DEFAULTS = {"name": "", "path": "", "kind": "", "parent": "", "source": "upload"}


@administrators
@require_http_methods(["GET", "HEAD", "POST"])
def register(request: SignedIn) -> HttpResponse:
    """Show the sources to choose from; POST takes in a folder or a GGUF file from the server's disk."""
    error = ""
    posted = request.POST.dict()
    if request.method == "POST":
        form = ImportForm(posted | {"path": posted.get(f"path_{posted.get('source')}", "")})
        try:
            if form.is_valid():
                return HttpResponseRedirect(import_url(_begin(request, form.cleaned_data)))
            error = first_error(form)
        except (RegistryRefused, ObjectDoesNotExist) as refusal:
            error = getattr(refusal, "reason", str(refusal))
    sources = import_sources()
    return render(request, "catalog/register.html", {
        "section": "models",
        "administrator": True,
        "error": error,
        "values": DEFAULTS | (posted or request.GET.dict()),
        "kinds": overview.KINDS,
        "sources": [
            ("folder", [found for found in sources if not found[0].lower().endswith(".gguf")], "Folder"),
            ("gguf", [found for found in sources if found[0].lower().endswith(".gguf")], "GGUF file"),
        ],
        "bases": overview.newest_versions(viewer=request.user),
        "imports": overview.imports_recent(),
        "uploads": [{"upload": found, "progress": uploads.upload_progress(found)}
                    for found in overview.uploads_open(viewer=request.user)],
        "upload_urls": {"begin": reverse("catalog:uploads"), "login": reverse("accounts:login")},
    }, status=400 if error else 200)


def _begin(request: SignedIn, fields: dict[str, Any]) -> "ImportJob":
    parent = _parent(request, fields["parent"])
    with transaction.atomic():
        job = import_jobs.import_create(by=request.user, name=fields["name"], path=fields["path"], kind=fields["kind"],
                                        parent=parent, publish=False)
        transaction.on_commit(lambda: import_dispatch(job.pk))
    return job


def _parent(request: SignedIn, reference: str) -> "Version | None":
    """Return the version that something was made from, named as `smollm2:1`. Raises Version.DoesNotExist, in words."""
    return version_resolve(reference=reference, user=request.user).version if reference.strip() else None


def import_url(job: "ImportJob") -> str:
    return reverse("catalog:import", args=[job.pk])


@administrators
@require_safe
def import_page(request: SignedIn, pk: uuid.UUID) -> HttpResponse:
    """Follow one import from copying to its verified version."""
    return live_page(request, "import", {"pk": str(pk)})


@administrators
@require_POST
def import_cancelled(request: SignedIn, pk: uuid.UUID) -> HttpResponse:
    job = import_jobs.import_for(viewer=request.user, pk=pk)
    return acted(request, lambda: import_jobs.import_cancel(job=job, by=request.user),
                 done="The import is being cancelled; nothing of it will be kept.", back=import_url(job))


# Uploads: what the wizard's worker asks for. Bodies and answers are JSON, but for the chunks.

@administrators_json
@require_POST
def upload_begun(request: SignedIn) -> JsonResponse:
    """Begin an upload, or go on with the one of the same name and files: {"name", "files": [{"path", "size"}]}."""
    body = _body(request)
    name, files = body.get("name"), body.get("files")
    if not isinstance(name, str) or not isinstance(files, list) or not all(isinstance(file, dict) for file in files):
        return _refused("A name and a list of files are needed.")
    try:
        return JsonResponse(_upload_data(uploads.upload_begin(by=request.user, name=name, files=files)), status=201)
    except RegistryRefused as refusal:
        return _refused(refusal.reason)


@administrators_json
@require_safe
def upload(request: SignedIn, pk: uuid.UUID) -> JsonResponse:
    return JsonResponse(_upload_data(uploads.upload_for(viewer=request.user, pk=pk)))


@administrators_json
@require_POST
def upload_chunk(request: SignedIn, pk: uuid.UUID, file: int, chunk: int) -> HttpResponse:
    """Take one chunk as the request's body, with its SHA-256 in the header X-Chunk-SHA256."""
    found = uploads.upload_for(viewer=request.user, pk=pk)
    body = request.read(found.chunk_bytes + 1)  # the site's limit on forms does not hold for a stream that is read
    try:
        uploads.upload_chunk(upload=found, by=request.user, file=file, chunk=chunk, body=body,
                             sha256=request.headers.get("X-Chunk-SHA256", ""))
    except UploadRefused as refusal:
        return _refused(refusal.reason, retry=refusal.retry)
    return HttpResponse(status=204)


@administrators_json
@require_POST
def upload_finish(request: SignedIn, pk: uuid.UUID) -> JsonResponse:
    """End an upload and begin its import: {"sha256": {path: digest}, "kind", "parent"}; answers with the page of it."""
    found = uploads.upload_for(viewer=request.user, pk=pk)
    body = _body(request)
    digests, kind, parent = body.get("sha256"), body.get("kind", ""), body.get("parent", "")
    if not isinstance(digests, dict) or not isinstance(kind, str) or not isinstance(parent, str):
        return _refused("The digests of the files are needed.")
    sha256 = {str(path): digest for path, digest in digests.items() if isinstance(digest, str)}
    try:
        with transaction.atomic():
            job = uploads.upload_finish(upload=found, by=request.user, sha256=sha256, kind=kind,
                                        parent=_parent(request, parent), publish=False)
            transaction.on_commit(lambda: import_dispatch(job.pk))
    except UploadRefused as refusal:
        return _refused(refusal.reason, retry=refusal.retry)
    except (RegistryRefused, ObjectDoesNotExist) as refusal:
        return _refused(getattr(refusal, "reason", str(refusal)))
    return JsonResponse({"url": import_url(job)})


@administrators
@require_POST
def upload_cancel(request: SignedIn, pk: uuid.UUID) -> HttpResponse:
    found = uploads.upload_for(viewer=request.user, pk=pk)
    uploads.upload_cancel(upload=found, by=request.user)
    messages.success(request, f"The upload of {found.name} was given up; nothing of it is kept.")
    return HttpResponseRedirect(reverse("catalog:register"))


def _upload_data(found: "Upload") -> dict[str, Any]:
    progress = uploads.upload_progress(found)
    return {
        "id": str(found.pk), "name": found.name, "chunk_bytes": found.chunk_bytes,
        "files": [{"path": file["path"], "size": file["size"]} for file in found.files],
        "done": progress.done, "total": progress.total,
        "missing": {str(number): chunks for number, chunks in progress.missing.items()},
        "url": reverse("catalog:upload", args=[found.pk]),
    }


def _body(request: HttpRequest) -> dict[str, Any]:
    """Return the request's JSON object, or {} for anything else."""
    try:
        value = json.loads(request.read(MAX_FRAME_BYTES))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _refused(reason: str, *, retry: bool = False) -> JsonResponse:
    return JsonResponse({"errors": {"__all__": [reason]}, "retry": retry}, status=409 if retry else 400)

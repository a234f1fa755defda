"""The registry's pages: what there is, of what it is made, where it is loaded, and how its tokenizers cut a text."""

from collections.abc import Mapping
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from registry import overview
from registry.access import is_administrator
from registry.card import version_card
from registry.diff import version_diff
from webapp.catalog import tokenizing
from webapp.catalog.access import SignedIn, members
from webapp.catalog.forms import CompareForm
from webapp.catalog.live import LIVE_PAGES
from webapp.catalog.planning import plan_context
from webapp.catalog.rates import Rates


def live_page(request: SignedIn, page: str, args: Mapping[str, str], *, section: str = "models", status: int = 200,
              **context: Any) -> HttpResponse:
    """Render a page whose parts its socket renders again later. args: what the parts are of, as plain strings."""
    parts = LIVE_PAGES[page].context(request.user, args, Rates())
    return render(request, f"catalog/{page}.html", parts | context | {
        "section": section,
        "administrator": is_administrator(request.user),
        "live": {"page": page, "args": dict(args), "socket": "/ws/catalog/"},
    }, status=status)


@members
@require_safe
def catalog(request: SignedIn) -> HttpResponse:
    """List the models: `?q=words&kind=chat&status=loaded&page=2`."""
    args = {name: request.GET[name] for name in ("q", "kind", "status", "page") if request.GET.get(name)}
    return live_page(request, "list", args, kinds=overview.KINDS, statuses=overview.STATUSES)


@members
@require_safe
def workers(request: SignedIn) -> HttpResponse:
    return live_page(request, "workers", {}, section="workers")


@members
@require_safe
def tokenizer(request: SignedIn) -> HttpResponse:
    """Show a text as the tokenizers of some versions cut it: `?text=…&v=smollm2:1&v=minilm:1`."""
    versions = overview.versions_named(viewer=request.user, names=request.GET.getlist("v")[:tokenizing.MAX_MODELS])
    text = request.GET.get("text", tokenizing.ENGLISH)
    if "v" not in request.GET:
        versions = overview.newest_versions(viewer=request.user)[:3]
    template = "catalog/parts/tokens.html" if "fragment" in request.GET else "catalog/tokenizer.html"
    return render(request, template, {
        "section": "tokenizer",
        "text": text,
        "too_long": len(text) > tokenizing.MAX_TEXT,
        "limit": tokenizing.MAX_TEXT,
        "columns": tokenizing.columns(versions=versions, text=text),
        "others": [version for version in overview.newest_versions(viewer=request.user) if version not in versions],
        "full": len(versions) >= tokenizing.MAX_MODELS,
        "english": tokenizing.ENGLISH,
        "chinese": tokenizing.CHINESE,
    })


@members
@require_safe
def model(request: SignedIn, name: str) -> HttpResponse:
    found = overview.model_visible(viewer=request.user, name=name)
    return live_page(request, "model", {"name": name}, access_choices=overview.ACCESS, groups=overview.all_groups(),
                     chosen_groups=[group.pk for group in found.groups.all()])


@members
@require_safe
def version(request: SignedIn, name: str, number: int) -> HttpResponse:
    return version_page(request, name, number)


def version_page(request: SignedIn, name: str, number: int, *, status: int = 200,
                 data: Mapping[str, str] | None = None, **context: Any) -> HttpResponse:
    """Render a version's page. data: settings to plan with; context: what a refused load adds to it."""
    found = overview.version_visible(viewer=request.user, name=name, number=number)
    artifacts = overview.version_artifacts(version=found)
    return live_page(request, "version", {"name": name, "number": str(number)}, status=status, **{
        "artifacts": artifacts,
        "total_bytes": sum(artifact.blob.size for artifact in artifacts),
        "card": version_card(found),
        **plan_context(version=found, data=request.GET if data is None else data),
        **context,
    })


@members
@require_safe
def plan(request: SignedIn, name: str, number: int) -> HttpResponse:
    """Give the plan alone, for the settings in the query: what the sliders of the version's page ask for."""
    found = overview.version_visible(viewer=request.user, name=name, number=number)
    return render(request, "catalog/parts/plan.html", plan_context(version=found, data=request.GET))


@members
@require_safe
def compare(request: SignedIn, name: str) -> HttpResponse:
    """Show what differs between two versions: `?from=1&to=2`."""
    form = CompareForm(request.GET)
    if not form.is_valid():
        raise Http404("There are no such versions.")
    before, after = (overview.version_visible(viewer=request.user, name=name, number=form.cleaned_data[field])
                     for field in ("from", "to"))
    return render(request, "catalog/compare.html", {"section": "models", "diff": version_diff(old=before, new=after)})

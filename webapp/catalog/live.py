"""What a page of the registry shows that changes by itself: its parts, rendered alike for the page and its socket."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User
from django.template.loader import render_to_string

from webapp.catalog import page_data
from webapp.catalog.rates import Rates

Args = Mapping[str, str]
Context = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class LivePage:
    """A kind of page. context: what its parts are rendered with; parts: templates in catalog/parts, by name.

    `context` takes (viewer, args, rates) and raises ObjectDoesNotExist for what the viewer may not see.
    """

    context: Callable[[User, Args, Rates], Context]
    parts: tuple[str, ...]


LIVE_PAGES: dict[str, LivePage] = {
    "list": LivePage(context=page_data.list_context, parts=("models",)),
    "model": LivePage(context=page_data.model_context, parts=("model_versions", "model_aliases", "history")),
    "version": LivePage(context=page_data.version_context,
                        parts=("version_head", "deployments", "experts", "checks", "history")),
    "import": LivePage(context=page_data.import_context, parts=("import",)),
    "workers": LivePage(context=page_data.workers_context, parts=("workers",)),
}


@dataclass(kw_only=True)
class Watch:
    """What one socket shows: a page for a viewer, and what was sent of it last."""

    page: str
    args: dict[str, str]
    rates: Rates = field(default_factory=Rates)
    sent: dict[str, str] = field(default_factory=dict)

    def changes(self, viewer: User) -> dict[str, str]:
        """Render the parts and return those that differ from what was returned before, by name.

        Raises ObjectDoesNotExist when the page is gone for this viewer.
        """
        fresh = render_parts(self.page, viewer, self.args, self.rates)
        changed = {name: html for name, html in fresh.items() if self.sent.get(name) != html}
        self.sent = fresh
        return changed


def render_parts(page: str, viewer: User, args: Args, rates: Rates) -> dict[str, str]:
    """Return the HTML of each part of a page. Raises ObjectDoesNotExist."""
    live = LIVE_PAGES[page]
    context = live.context(viewer, args, rates)
    return {name: render_to_string(f"catalog/parts/{name}.html", context) for name in live.parts}

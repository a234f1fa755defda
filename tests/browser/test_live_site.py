"""The site that the other browser tests stand on: it signs in, and its parts come back when they are killed."""

import json
import os
import signal
import urllib.request

import pytest
from playwright.sync_api import Page

from tests.live_site import LiveSite
from webapp.ops.processes import wait_until


def test_the_administrator_can_sign_in(signed_in_page: Page, live_site: LiveSite) -> None:
    signed_in_page.goto(f"{live_site.url}admin/")
    assert "Site administration" in signed_in_page.content()


def test_the_demo_model_is_loaded_in_the_wished_mode(live_site: LiveSite) -> None:
    from registry.models import Deployment

    with live_site.database() as alias:
        deployment = Deployment.objects.using(alias).get(version__model__name="smollm2")
    assert (deployment.state, deployment.facts["mode"]) == ("loaded", live_site.mode)


def test_static_files_are_kept_by_browsers_under_hashed_names(page: Page, live_site: LiveSite) -> None:
    fetched: dict[str, str] = {}
    page.on("response", lambda answer: fetched.update({answer.url: answer.headers.get("cache-control", "")}))
    page.goto(f"{live_site.url}accounts/login/", wait_until="networkidle")
    styles = {url: kept for url, kept in fetched.items() if "/static/" in url and url.endswith(".css")}
    assert styles
    assert all("immutable" in kept for kept in styles.values()), styles


def test_the_site_answers_again_after_its_web_process_and_valkey_are_killed(live_site: LiveSite) -> None:
    def is_ready() -> bool:
        try:
            with urllib.request.urlopen(f"{live_site.url}readyz", timeout=5) as answer:
                return set(json.load(answer).values()) == {"ok"}
        except OSError:
            return False

    for pid in (live_site.web_pid, live_site.valkey_pid):
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not _runs(pid), seconds=5)  # noqa: B023
        assert wait_until(is_ready, seconds=15), live_site.output
    assert "web ended (killed by SIGKILL)" in live_site.output
    assert "valkey ended (killed by SIGKILL)" in live_site.output


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


pytestmark = pytest.mark.timeout(400)

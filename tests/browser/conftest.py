"""Chromium for the browser tests."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.live_site import LiveSite

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
             "--disable-dev-shm-usage"]
DEFAULT_TIMEOUT_MS = 15_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests: PARLEY_CHROMIUM, else the one on the path. Skips without one, but fails under CI."""
    path = os.environ.get("PARLEY_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("Chromium is not installed (Debian: chromium)")
    # Playwright keeps an event loop running in this thread, and Django would refuse its ORM for that.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A fresh profile: no cookies, nothing cached."""
    context = browser.new_context(locale="en-GB", viewport={"width": 1280, "height": 900})
    context.set_default_timeout(DEFAULT_TIMEOUT_MS)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


@pytest.fixture
def signed_in_page(page: Page, live_site: LiveSite) -> Page:
    """A page that is signed in as the administrator and shows the chat."""
    page.goto(f"{live_site.url}accounts/login/")
    page.fill("input[name=username]", live_site.username)
    page.fill("input[name=password]", live_site.password)
    page.click("button[type=submit]")
    page.wait_for_url(lambda url: "/login" not in url)
    return page

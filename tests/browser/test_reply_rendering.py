"""Replies in Chromium, through the real libraries: model text is inert while it streams and after a reload."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from csp.utils import build_policy
from django.contrib.staticfiles import finders
from playwright.sync_api import Browser, Page

HERE = Path(__file__).parent
HOSTILE = (HERE / "hostile_reply.md").read_text()
PAGE = (b"<!doctype html><meta charset=utf-8><div id=reply></div>"
        b"<script type=module src=/reply_rendering.js></script>")


class _Files(BaseHTTPRequestHandler):
    """Serves the site's static files, and one page that uses them, under the site's Content-Security-Policy."""

    def do_GET(self) -> None:
        if self.path == "/":
            self.answer(PAGE, "text/html")
        elif self.path == "/reply_rendering.js":
            self.answer((HERE / "reply_rendering.js").read_bytes(), "text/javascript")
        elif found := finders.find(self.path.removeprefix("/static/")):
            self.answer(Path(str(found)).read_bytes(), "text/javascript")
        else:
            self.send_error(404)

    def answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", str(build_policy()))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser_page(browser: Browser) -> Iterator[Page]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Files)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.wait_for_function("window.replies")
        yield page
        page.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def page(browser_page: Page) -> Iterator[Page]:
    """The page; at the end of each test nothing of the model's text may have run, or asked for anything."""
    asked: list[str] = []

    def note(request: Any) -> None:
        asked.append(request.url)

    browser_page.on("request", note)
    yield browser_page
    browser_page.wait_for_timeout(200)
    browser_page.remove_listener("request", note)
    assert asked == []
    assert browser_page.evaluate("window.pwned") is None


def test_hostile_text_is_inert_at_every_step_of_streaming(page: Page) -> None:
    assert page.evaluate("(text) => replies.stream(text, 3)", HOSTILE)["live"] == []
    assert page.evaluate("window.violations") == []  # the policy had nothing to stop


def test_hostile_text_is_inert_and_legible_once_finished(page: Page) -> None:
    drawn = page.evaluate("(text) => replies.finish(text)", HOSTILE)
    assert drawn["live"] == []
    assert drawn["text"].count("window.pwned") == 9  # the others are a link's title, a fence's label …


@pytest.mark.parametrize("markup", [
    "<img src=x onerror=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<a href='javascript:alert(1)'>x</a>",
    "<a href='/accounts/logout/'>x</a>",
    "<p style='color:red' id=scroller>x</p>",
    "<p class='toast connection'>x</p>",
    "<form action='https://evil.example'><input></form>",
    "<math><mi>x</mi></math>",
])
def test_the_sanitiser_alone_stops_what_the_markdown_stage_would_let_through(page: Page, markup: str) -> None:
    clean = page.evaluate("(markup) => replies.sanitise(markup)", markup)
    for part in ("<img", "<svg", "<form", "<math", "alert", "/accounts/", "style=", "id=", "toast"):
        assert part not in clean


def test_streaming_ends_with_what_a_reload_shows(page: Page) -> None:
    text = ("# T\n\nOne *two*\n\n1. a\n2. b\n\n   c\n\n```python\nx = 1\n\ny = 2\n```\n\n| a |\n|--:|\n| 1 |\n\n"
            "See [it][r]. 中文 👩\u200d🚀\n\n[r]: https://ok.example/")
    streamed = page.evaluate("(text) => replies.stream(text, 2)", text)["html"]
    assert streamed == page.evaluate("(text) => replies.finish(text)", text)["html"]
    assert 'href="https://ok.example/"' in streamed


def test_code_has_its_language_and_a_copy_button(page: Page) -> None:
    page.evaluate("(text) => replies.finish(text)", "```python\nx = 1\n```")
    assert page.text_content(".code-language") == "python"
    assert page.text_content(".code-block code") == "x = 1\n"
    assert page.get_attribute("[data-testid=copy-code]", "aria-label") == "Copy code"
    assert page.locator(".hljs-number").count() == 1


def test_blocks_that_have_settled_are_not_drawn_again(page: Page) -> None:
    assert page.evaluate("() => replies.kept()") == 40

"""The registry's pages in Chromium against the real processes: upload, load, refusal, an alias moved in mid-reply."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from playwright.sync_api import Error, Page, Request, Route, expect

from registry.models import Alias, Deployment, ImportJob, Model, Version
from tests.browser.chat_page import ENDED, ChatPage
from tests.live_site import LiveSite

pytestmark = pytest.mark.timeout(400)
CHUNK_BYTES = 4 * 1024 * 1024
CHUNK = re.compile(r"/catalog/uploads/[0-9a-f-]+/\d+/\d+/$")
LOADED = "[data-testid=deployment][data-state=loaded]"
LOAD_MS = 90_000
LONG = "Write the numbers from 1 to 1000, separated by commas."


@pytest.fixture
def errors(page: Page) -> Iterator[list[str]]:
    """What the browser complained of; a test ends with none."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("console", lambda message: found.append(message.text) if "Content Security" in message.text else None)
    yield found
    assert not found


@contextmanager
def cut_after(page: Page, chunks: int) -> Iterator[list[str]]:
    """Let so many chunks through and hold the rest, as a line that is lost does; yields the addresses seen."""
    seen: list[str] = []
    held: list[Route] = []

    def handle(route: Route) -> None:
        seen.append(route.request.url)
        if len(seen) <= chunks:
            route.continue_()
        else:
            held.append(route)

    page.route(CHUNK, handle)
    yield seen
    for route in held:
        with suppress(Error):  # the page that asked is gone
            route.abort()
    page.unroute(CHUNK)


def choose_folder(page: Page, folder: Path, name: str) -> None:
    page.get_by_test_id("upload-folder").set_input_files(folder)
    page.get_by_test_id("register-name").fill(name)


def test_a_model_is_uploaded_over_a_reload_checked_published_and_loaded(
        signed_in_page: Page, live_site: LiveSite, demo_embedding_path: Path, errors: list[str]) -> None:
    page = signed_in_page
    page.on("dialog", lambda dialog: dialog.accept())  # the browser asks before it leaves an upload
    page.goto(f"{live_site.url}catalog/register/")
    choose_folder(page, demo_embedding_path, "uploaded")
    with cut_after(page, 8) as seen:
        page.get_by_test_id("upload-start").click()
        while len(seen) < 9:
            page.wait_for_timeout(20)
        page.reload()
    expect(page.locator("[data-testid=unfinished-upload][data-name=uploaded]")).to_be_visible()

    again: list[str] = []
    page.on("request", lambda request: _note_chunk(request, again))
    choose_folder(page, demo_embedding_path, "uploaded")
    page.get_by_test_id("upload-start").click()
    page.wait_for_url("**/catalog/imports/*/", timeout=60_000)
    sizes = [path.stat().st_size for path in demo_embedding_path.rglob("*") if path.is_file()]
    total = sum(-(-size // CHUNK_BYTES) for size in sizes)
    assert again
    assert len(again) <= total - 8, "chunks that had arrived were sent again"

    expect(page.get_by_test_id("import-done")).to_be_visible(timeout=60_000)
    outcomes = set(page.get_by_test_id("check").evaluate_all("all => all.map(one => one.dataset.outcome)"))
    assert outcomes <= {"pass", "warn"}
    assert "pass" in outcomes
    expect(page.get_by_test_id("import-plan").get_by_test_id("plan-verdict")).to_be_visible()
    page.get_by_test_id("publish").click()
    expect(page.locator("[data-testid=version-state]")).to_have_attribute("data-state", "ready")
    with live_site.database() as alias:
        version = Version.objects.using(alias).get(model__name="uploaded")
        demo = Version.objects.using(alias).get(model__name="minilm")
        held = [dict(row.artifacts.values_list("path", "blob_id")) for row in (version, demo)]
        assert ImportJob.objects.using(alias).get(name="uploaded").state == "done"
    assert held[0] == held[1]

    page.get_by_test_id("load").click()
    expect(page.locator(LOADED)).to_be_visible(timeout=LOAD_MS)
    expect(page.get_by_test_id("measured")).to_contain_text("Weights")
    unload(page)


def _note_chunk(request: Request, seen: list[str]) -> None:
    if CHUNK.search(request.url):
        seen.append(request.url)


def unload(page: Page) -> None:
    """Press Unload, say yes, and wait until it is gone."""
    page.get_by_test_id("unload").click()
    page.get_by_test_id("confirm-yes").click()
    expect(page.locator("[data-testid=deployment][data-state=unloaded]")).to_be_visible(timeout=60_000)


NOTE_PHASES = """() => {
  window.phases = new Set();
  new MutationObserver(() => {
    const card = document.querySelector("[data-testid=deployment][data-state=loading]");
    if (card?.querySelector("[data-testid=load-progress]")) window.phases.add(card.querySelector("h3").textContent);
  }).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
}"""
"""Notes what a loading deployment says of itself while it has a progress bar, in window.phases."""


def test_a_load_shows_its_progress_and_unloading_asks_first(
        signed_in_page: Page, live_site: LiveSite, errors: list[str]) -> None:
    page = signed_in_page
    page.goto(f"{live_site.url}catalog/m/smollm2/1/")
    expect(page.locator(LOADED)).to_be_visible(timeout=LOAD_MS)
    page.get_by_test_id("unload").click()
    page.keyboard.press("Escape")  # no
    expect(page.locator(LOADED)).to_be_visible()
    unload(page)
    page.evaluate(NOTE_PHASES)
    page.get_by_test_id("load-again").evaluate("button => { button.form.target = 'elsewhere'; }")  # this page stays
    with page.context.expect_page() as opened:
        page.get_by_test_id("load-again").click()
    opened.value.close()
    expect(page.locator(LOADED)).to_be_visible(timeout=LOAD_MS)
    assert page.evaluate("() => [...window.phases]"), "no progress was seen"
    expect(page.get_by_test_id("measured")).to_contain_text("KV cache")


def test_a_load_that_does_not_fit_is_refused_with_the_arithmetic(
        signed_in_page: Page, live_site: LiveSite, newer: Version, errors: list[str]) -> None:
    page = signed_in_page
    page.goto(f"{live_site.url}catalog/m/smollm2/2/")
    page.locator(".more summary").click()
    page.fill("[name=kv_cache_bytes]", str(10**14))
    page.get_by_test_id("load").click()
    refused = page.get_by_test_id("load-refused")
    expect(refused).to_contain_text("does not fit")
    expect(refused).to_contain_text("are free")
    expect(page.get_by_test_id("plan-lines")).to_contain_text("KV cache")
    with live_site.database() as alias:
        assert not Deployment.objects.using(alias).filter(version=newer, wanted=True).exists()


@pytest.fixture
def newer(live_site: LiveSite) -> Iterator[Version]:
    """Version 2 of the demo chat model, made of the same files as version 1; out of use again after the test."""
    with live_site.database() as alias:
        version = second_version(alias)
    yield version
    with live_site.database() as alias:
        Deployment.objects.using(alias).filter(version=version).update(wanted=False)
        Alias.objects.using(alias).filter(model=version.model_id).delete()
        Version.objects.using(alias).filter(pk=version.pk).update(state="archived")


def second_version(alias: str) -> Version:
    first = Version.objects.using(alias).select_related("model").get(model__name="smollm2", number=1)
    made, fresh = Version.objects.using(alias).get_or_create(
        model=first.model, number=2, defaults={"state": "ready", "context_length": first.context_length,
                                               "parameters": first.parameters, "checks": first.checks})
    if fresh:
        for artifact in first.artifacts.all():
            made.artifacts.create(path=artifact.path, role=artifact.role, blob=artifact.blob)
    Version.objects.using(alias).filter(pk=made.pk).update(state="ready")
    return made


def test_an_alias_moved_while_a_reply_is_written_changes_the_next_one(
        signed_in_page: Page, live_site: LiveSite, newer: Version, errors: list[str]) -> None:
    with live_site.database() as alias:
        model = Model.objects.using(alias).get(name="smollm2")
        first = Version.objects.using(alias).get(model=model, number=1)
        Alias.objects.using(alias).update_or_create(
            model=model, name="production", defaults={"version": first, "previous": None})
        Deployment.objects.using(alias).update_or_create(
            version=newer, node="", defaults={"wanted": True, "max_num_seqs": 2, "max_model_len": 2048})
    chat = ChatPage(signed_in_page, live_site)
    chat.page.set_default_timeout(60_000)  # two models share the processor with whatever else runs there
    watcher = signed_in_page.context.new_page()
    watcher.goto(f"{live_site.url}catalog/m/smollm2/2/")
    expect(watcher.locator(LOADED)).to_be_visible(timeout=LOAD_MS)

    chat.open_conversation(max_tokens=400)
    chat.pick_model("smollm2@production")
    expect(chat.page.get_by_test_id("model-picker")).to_contain_text("smollm2@production")
    chat.send(LONG)
    chat.wait_for_text(60)
    mover = signed_in_page.context.new_page()
    mover.goto(f"{live_site.url}catalog/m/smollm2/")
    watcher.goto(f"{live_site.url}catalog/m/smollm2/")
    row = "[data-testid=alias-row][data-alias=production]"
    mover.locator(row).get_by_test_id("alias-move").first.click()
    expect(mover.locator(row)).to_contain_text("smollm2:2")
    expect(watcher.locator(row)).to_contain_text("smollm2:2")  # without a reload
    assert not ENDED.match(chat.reply.get_attribute("data-state") or ""), "the reply ended before the alias was moved"
    chat.wait_ended(seconds=120)
    running = chat.stored()
    assert (running.version_id, running.state) == (first.pk, "done")
    chat.send("What is the capital of France?")
    expect(chat.page.locator("[data-testid=message][data-role=assistant]")).to_have_count(2)
    chat.wait_ended(seconds=120)
    assert chat.stored().version_id == newer.pk
    mover.locator(row).get_by_test_id("alias-back").click()
    expect(mover.locator(row)).to_contain_text("smollm2:1")


def test_tokens_follow_the_text_as_it_is_typed(signed_in_page: Page, live_site: LiveSite, errors: list[str]) -> None:
    page = signed_in_page
    page.goto(f"{live_site.url}catalog/tokenizer/?v=smollm2:1&v=minilm:1&text=Hello")
    count = page.locator("[data-version='smollm2:1'] [data-testid=token-count]")
    expect(count).to_have_text("1")
    page.get_by_test_id("tokenizer-text").fill("Hello world, 你好")
    expect(count).not_to_have_text("1")
    pieces = page.locator("[data-version='smollm2:1'] .token")
    assert pieces.count() == int(count.inner_text())
    page.get_by_test_id("show-ids").check()
    assert page.locator("#tokens.token-ids").count() == 1


def test_workers_show_memory_and_live_tokens(signed_in_page: Page, live_site: LiveSite, errors: list[str]) -> None:
    chat = ChatPage(signed_in_page, live_site)
    chat.open_conversation(max_tokens=1500)
    workers = signed_in_page.context.new_page()
    workers.goto(f"{live_site.url}catalog/workers/")
    expect(workers.get_by_test_id("worker")).to_contain_text("Weights")
    chat.send(LONG)
    rates = workers.get_by_test_id("tokens-per-second")
    deadline = time.monotonic() + 60
    while not any(re.match(r"[1-9]", rate) for rate in rates.all_inner_texts()):
        assert time.monotonic() < deadline, workers.inner_text("main")
        workers.wait_for_timeout(100)
    chat.page.get_by_test_id("stop").click()
    chat.wait_ended()

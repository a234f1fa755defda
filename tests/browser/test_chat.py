"""Chatting in Chromium against the real processes: growing text, reload, stop, two at once, and killed workers."""

import os
import re
import signal
import time

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.chat_page import ENDED, GROWTH, ChatPage
from tests.live_site import LiveSite
from webapp.ops.processes import wait_until

pytestmark = pytest.mark.timeout(400)
LONG = "Write the numbers from 1 to 1000, separated by commas."


@pytest.fixture
def chat(signed_in_page: Page, live_site: LiveSite) -> ChatPage:
    return ChatPage(signed_in_page, live_site)


def test_a_newcomer_signs_in_picks_the_model_and_is_told_that_paris_is_the_capital(chat: ChatPage) -> None:
    chat.open_conversation()
    chat.pick_model("smollm2:1")
    chat.send("What is the capital of France?")
    chat.wait_ended()
    assert "Paris" in chat.reply_text()
    expect(chat.reply.get_by_test_id("reply-text")).to_contain_text("Paris")
    expect(chat.reply.get_by_test_id("reply-stats")).to_contain_text("tokens/s")
    row = chat.stored()
    assert (row.state, row.text) == ("done", chat.reply_text())
    assert row.first_token_at is not None


def test_a_reply_is_seen_growing_before_it_ends(chat: ChatPage) -> None:
    chat.open_conversation(max_tokens=300)
    chat.page.evaluate(GROWTH)
    chat.send(LONG)
    chat.wait_ended()
    seen = chat.page.evaluate("window.seen")
    assert len(seen) >= 5, seen
    assert chat.reply_text() == chat.stored().text


def test_a_reload_in_the_middle_of_a_long_reply_ends_with_the_stored_text(chat: ChatPage) -> None:
    chat.open_conversation(max_tokens=700)
    chat.send(LONG)
    chat.wait_for_text(60)
    chat.page.reload()
    chat.wait_for_text(60)
    assert not ENDED.match(chat.reply.get_attribute("data-state") or ""), "the reply ended before the reload"
    chat.wait_ended(seconds=120)
    row = chat.stored()
    assert row.output_count > 300
    assert chat.reply_text() == row.text


def test_stop_ends_a_reply_within_a_second_and_keeps_its_text(chat: ChatPage) -> None:
    chat.open_conversation(max_tokens=4000)
    chat.send(LONG)
    chat.wait_for_text(60)
    pressed = time.monotonic()
    chat.page.get_by_test_id("stop").click()
    expect(chat.reply).to_have_attribute("data-state", "stopped", timeout=5000)
    seconds = time.monotonic() - pressed
    assert seconds < 1, f"it took {seconds:.2f} s"
    row = chat.stored()
    assert row.state == "stopped"
    assert len(row.text) >= 60
    assert chat.reply_text() == row.text
    assert wait_until(lambda: chat.running_count() == 0, seconds=5)
    chat.page.reload()
    chat.wait_for_text(60)
    assert chat.reply_text() == row.text


def test_two_conversations_stream_at_the_same_time_each_its_own_text(
        chat: ChatPage, context: BrowserContext, live_site: LiveSite) -> None:
    other = ChatPage(context.new_page(), live_site)
    chat.open_conversation(max_tokens=400)
    other.open_conversation(max_tokens=400, system_prompt="You only ever write about the sea.")
    chat.send(LONG)
    other.send("Write a very long story about a ship, with many chapters.")
    chat.wait_for_text(30)
    other.wait_for_text(30)
    both = [tab.stored().state for tab in (chat, other)]
    assert both == ["running", "running"]
    for tab in (chat, other):
        tab.wait_ended(seconds=120)
    first, second = chat.stored(), other.stored()
    assert (chat.reply_text(), other.reply_text()) == (first.text, second.text)
    assert first.text != second.text
    assert first.created_at < second.ended_at  # type: ignore[operator]
    assert second.created_at < first.ended_at  # type: ignore[operator]


def test_a_prompt_over_the_context_is_refused_with_both_numbers_and_kept(chat: ChatPage) -> None:
    chat.open_conversation()
    text = "word " * 9000
    chat.send(text)
    numbers = r"9,?0\d\d\b.*\b8,?192\b"  # what it has, and what there is room for
    expect(chat.page.locator("#composer-note")).to_have_text(re.compile(numbers))
    assert chat.page.get_by_test_id("composer").input_value().strip() == text.strip()


@pytest.mark.slow
@pytest.mark.parametrize("live_site", ["float32"], indirect=True)
@pytest.mark.parametrize("victim", ["engine_pid", "model_worker_pid", "node_pid"])
def test_a_connected_page_shows_the_undisturbed_text_after_a_kill(
        chat: ChatPage, live_site: LiveSite, victim: str) -> None:
    chat.open_conversation(max_tokens=250)
    chat.send(LONG)
    chat.wait_ended()
    undisturbed = chat.reply_text()
    chat.open_conversation(max_tokens=250)
    chat.send(LONG)
    chat.wait_for_text(100)
    os.kill(getattr(live_site, victim), signal.SIGKILL)
    chat.wait_ended(seconds=90)
    row = chat.stored()
    assert row.attempt > 1, "the reply ended before the kill"
    assert chat.reply_text() == undisturbed == row.text

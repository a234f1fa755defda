"""The chat page as a person drives it, and what the server stored, for the browser tests."""

import json
import re
import time
from typing import Any

import redis
from playwright.sync_api import Locator, Page, expect

from tests.live_site import LiveSite
from webapp.serving.models import Generation
from webapp.serving.stats import stats_key

ENDED = re.compile("done|stopped|failed")


class ChatPage:
    """One tab with the chat open."""

    def __init__(self, page: Page, site: LiveSite) -> None:
        self.page, self.site = page, site

    def open_conversation(self, **settings: Any) -> str:
        """Make a conversation with these settings, open it and return its id."""
        created = self._post("c/", {})
        self._post(f"c/{created['id']}/settings/", {"temperature": 0, "max_tokens": 200, **settings})
        self.page.goto(f"{self.site.url}c/{created['id']}/")
        expect(self.page.locator("html[data-ready]")).to_be_attached()
        return str(created["id"])

    def _post(self, path: str, fields: dict[str, Any]) -> dict[str, Any]:
        token = next(cookie["value"] for cookie in self.page.context.cookies() if cookie["name"] == "csrftoken")
        answer = self.page.request.post(self.site.url + path, form={name: str(value) for name, value in fields.items()},
                                        headers={"X-CSRFToken": token, "Referer": self.site.url})
        assert answer.ok, answer.text()
        body: dict[str, Any] = answer.json()
        return body

    def pick_model(self, name: str) -> None:
        self.page.get_by_test_id("model-picker").click()
        self.page.locator(f"[data-testid=model-option][data-name='{name}']").click()

    def send(self, text: str) -> None:
        self.page.get_by_test_id("composer").fill(text)
        self.page.get_by_test_id("composer").press("Enter")

    @property
    def reply(self) -> Locator:
        """The newest reply."""
        return self.page.locator("[data-testid=message][data-role=assistant]").last

    def reply_text(self) -> str:
        text: str = self.reply.evaluate("message => message.rawText || ''")
        return text

    def wait_for_text(self, characters: int) -> None:
        self.page.wait_for_function(
            "least => { const all = document.querySelectorAll('[data-testid=message][data-role=assistant]');"
            " return all.length && (all[all.length - 1].rawText || '').length >= least; }", arg=characters)

    def wait_ended(self, seconds: float = 60) -> None:
        expect(self.reply).to_have_attribute("data-state", ENDED, timeout=seconds * 1000)

    def stored(self) -> Generation:
        """The row behind the newest reply, from the site's own database."""
        pk = self.reply.get_attribute("data-generation")
        with self.site.database() as alias:
            return Generation.objects.using(alias).get(pk=pk)

    def running_count(self) -> int:
        """Requests that are in the engines of the newest reply's version right now, as they report each second."""
        client = redis.Redis.from_url((self.site.home / "redis_url").read_text().strip())
        found = [json.loads(body) for body in client.hgetall(stats_key(self.stored().version_id)).values()]
        client.close()
        assert found, "no engine reports"
        assert all(time.time() - row["at"] < 5 for row in found)
        return sum(row["stats"]["running"] + row["stats"]["waiting"] for row in found)


GROWTH = """() => {
  window.seen = [];
  const look = () => {
    const all = document.querySelectorAll("[data-testid=message][data-role=assistant]");
    const last = all[all.length - 1];
    if (last) {
      const shown = last.querySelector("[data-testid=reply-text]").textContent.length;
      const running = !["done", "stopped", "failed"].includes(last.dataset.state);
      if (running && shown > (window.seen[window.seen.length - 1] || 0)) window.seen.push(shown);
    }
    requestAnimationFrame(look);
  };
  look();
}"""
"""Notes each length of the newest reply's shown text while it runs, in window.seen."""

"""Load through signed-in WebSockets: what a browser does, many at once, timed from the first send to the last end."""

import asyncio
import http.cookiejar
import json
import time
import urllib.parse
import urllib.request
import uuid
from dataclasses import dataclass, field
from typing import Any

import websockets

PROMPT = "Write a story about {topic}, with a beginning, a middle and an end."
TOPICS = ("a fox", "a lighthouse", "the sea", "a lost key", "two brothers", "a train at night", "an old tree", "rain")


def prompts(count: int) -> list[str]:
    """Return `count` prompts, none the same as another."""
    return [PROMPT.format(topic=f"{TOPICS[i % len(TOPICS)]} and the number {i}") for i in range(count)]


class SignedIn:
    """One person's HTTP session: signs in, makes conversations, and gives the cookies that the socket needs."""

    def __init__(self, url: str, username: str, password: str) -> None:
        self.url = url.rstrip("/")
        self.jar = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar))
        self.opener.open(f"{self.url}/accounts/login/").read()
        self.post("/accounts/login/", {"username": username, "password": password})
        if not self._cookie("sessionid"):
            raise SystemExit(f"{username} could not sign in at {self.url}: check the name and the password.")

    def _cookie(self, name: str) -> str:
        return next((cookie.value or "" for cookie in self.jar if cookie.name == name), "")

    def post(self, path: str, fields: dict[str, Any]) -> bytes:
        request = urllib.request.Request(
            self.url + path, data=urllib.parse.urlencode(fields).encode(),
            headers={"X-CSRFToken": self._cookie("csrftoken"), "Referer": self.url + "/"},
        )
        with self.opener.open(request) as response:
            body: bytes = response.read()
            return body

    def new_conversation(self, *, version: int, max_tokens: int) -> str:
        """Make a greedy conversation and return its id."""
        conversation: str = json.loads(self.post("/c/", {"version": version}))["id"]
        self.post(f"/c/{conversation}/settings/", {"temperature": 0, "max_tokens": max_tokens, "system_prompt": ""})
        return conversation

    def socket(self) -> Any:
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.jar)
        return websockets.connect(
            self.url.replace("http", "ws", 1) + "/ws/chat/", origin=self.url,  # type: ignore[arg-type]
            additional_headers={"Cookie": cookies}, max_size=2**24,
        )


@dataclass
class Reply:
    """What one generation showed on its socket."""

    prompt: str
    text: str = ""
    index: int = 0
    problems: list[str] = field(default_factory=list)
    view: dict[str, Any] = field(default_factory=dict)

    def add(self, delta: dict[str, Any]) -> None:
        if delta["first"] != self.index + 1:
            self.problems.append(f"token {delta['first']} came after {self.index}")
        self.index = delta["last"]
        self.text += delta["text"]


ENDED = ("done", "stopped", "failed")


async def converse(session: SignedIn, work: dict[str, str]) -> dict[str, Reply]:
    """Send each conversation's prompt over one socket and read until all have ended; the replies by generation id."""
    replies: dict[str, Reply] = {}
    waiting = {str(uuid.uuid4()): conversation for conversation in work}
    async with session.socket() as socket:
        for ref, conversation in waiting.items():
            await socket.send(json.dumps({"type": "message.send", "ref": ref, "conversation": conversation,
                                          "parent": None, "text": work[conversation]}))
        while waiting or any(reply.view.get("state") not in ENDED for reply in replies.values()):
            _take(json.loads(await socket.recv()), waiting, replies, work)
    return replies


def _take(frame: dict[str, Any], waiting: dict[str, str], replies: dict[str, Reply], work: dict[str, str]) -> None:
    match frame["type"]:
        case "message.created" if frame.get("ref") in waiting:
            conversation = waiting.pop(frame["ref"])
            view = frame["reply"]["generation"]
            replies[view["id"]] = Reply(prompt=work[conversation], view=view)
        case "generation.deltas":
            for delta in frame["deltas"]:
                replies[delta["generation"]].add(delta)
        case "generation.snapshot":
            reply = replies[frame["generation"]]
            reply.text, reply.index, reply.view = frame["text"], frame["index"], frame["view"]
        case "generation.view" if frame["view"]["id"] in replies:
            replies[frame["view"]["id"]].view = frame["view"]
        case "error":
            raise SystemExit(f"The site refused: {frame['code']}: {frame['message']}")


async def run(sessions: list[SignedIn], work: list[dict[str, str]]) -> tuple[float, dict[str, Reply]]:
    """Drive every session's work at once; seconds from the first send to the last end, and all replies."""
    start = time.perf_counter()
    parts = await asyncio.gather(*(converse(session, part) for session, part in zip(sessions, work, strict=True)))
    seconds = time.perf_counter() - start
    return seconds, {pk: reply for part in parts for pk, reply in part.items()}

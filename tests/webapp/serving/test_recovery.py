"""Killing any process in the middle of a float32 greedy reply: it goes on by itself and ends as if nothing had been.

The soak (`pytest -m soak tests/webapp/serving/test_recovery.py`) kills each kind five times at each moment.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.webapp.serving.running_node import RunningNode, wait_for, wait_loaded
from tests.webapp.serving.running_valkey import OwnValkey
from webapp.serving.models import Generation, GenerationState
from webapp.serving.services import generation_create
from webapp.serving.streams import stream_client, stream_key, stream_tail

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from registry.models import Version

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.django_db(transaction=True)]

VICTIMS = ["engine", "model worker", "node worker"]
RECOVERY_SECONDS = 10.0
LENGTH = 160
Ask = Callable[..., Generation]


@pytest.fixture
def ask(ada: "User", loaded_version: "Version") -> Ask:
    def create(about: str, *, max_tokens: int = LENGTH) -> Generation:
        return generation_create(
            owner=ada, version=loaded_version, messages=[{"role": "user", "content": f"Tell a story about {about}."}],
            sampling={"temperature": 0, "max_tokens": max_tokens, "ignore_eos": True})

    return create


@pytest.fixture
def loaded_version(request: pytest.FixtureRequest, demo_version: "Version") -> "Version":
    """The demo model in float32, one sequence at a time: what is asked for beyond five waits in the queue."""
    from registry.services.deployments import deployment_load

    request.getfixturevalue("node_on_own_valkey" if "own_valkey" in request.fixturenames else "running_node")
    deployment_load(version=demo_version, settings={"mode": "float32", "max_num_seqs": 1, "max_model_len": 1024})
    wait_loaded(demo_version)
    return demo_version


def row(generation: Generation) -> Generation:
    return Generation.objects.get(pk=generation.pk)


def ended(*generations: Generation) -> bool:
    return not Generation.objects.filter(pk__in=[generation.pk for generation in generations]).exclude(
        state__in=[GenerationState.DONE, GenerationState.FAILED, GenerationState.STOPPED]).exists()


def wait_ended(*generations: Generation, seconds: float = 90) -> None:
    wait_for(lambda: ended(*generations), seconds=seconds, what="all have ended")


def streamed(generation: Generation) -> int:
    """The index of the last token that a reader can have seen."""
    last = stream_client().xrevrange(stream_key(generation.pk), count=1)
    return int(last[0][0].split("-")[0]) if last else 0


def kill_in_mid_reply(node: RunningNode, victim: str, *, ask: Ask, at: int, about: str) -> None:
    """One round: an undisturbed reply, then the same with a kill at token `at` while others wait in the queue."""
    undisturbed = ask(about)
    wait_ended(undisturbed)
    reply, others = kill_at(lambda: node.kill(victim), ask=ask, at=at, about=about)
    began, seen = time.monotonic(), streamed(reply)
    loaded = wait_goes_on(reply, seen, version=reply.version)
    print(f"{victim} killed at token {seen} (row {row(reply).output_count}): loaded after {loaded:.1f} s, "
          f"went on after {time.monotonic() - began:.1f} s")
    wait_ended(reply, *others)
    after, expected = row(reply), row(undisturbed)
    assert (after.state, after.output_count) == (GenerationState.DONE, LENGTH), after.error
    assert after.output_ids == expected.output_ids
    assert after.text == expected.text
    assert {row(other).state for other in others} == {GenerationState.DONE}
    wait_for(lambda: node.left_over_old() == [], seconds=15, what="the killed one's processes are gone")


def kill_at(kill: Callable[[], None], *, ask: Ask, at: int, about: str) -> tuple[Generation, list[Generation]]:
    """Kill at token `at` of a reply, others still queued; on a busy machine it may take some tries to be in time."""
    for _ in range(5):
        reply = ask(about)
        others = [ask(f"{about}, number {number}", max_tokens=3) for number in range(6)]
        wait_for(lambda reply=reply: streamed(reply) >= at, seconds=60, what=f"token {at} is streamed", every=0.002)
        if row(reply).state == GenerationState.RUNNING and row(others[-1]).state == GenerationState.QUEUED:
            kill()
            return reply, others
        wait_ended(reply, *others)
    pytest.fail(f"every reply had ended before the kill at token {at}")


def wait_goes_on(reply: Generation, seen: int, *, version: "Version") -> float:
    """Wait until the next token, at most RECOVERY_SECONDS after the replacement is ready; returns when that was."""
    began = time.monotonic()
    wait_for(lambda: row(reply).attempt > 1 or ended(reply), seconds=60, what="the next attempt begins")
    wait_loaded(version)
    loaded = time.monotonic() - began
    wait_for(lambda: streamed(reply) > seen or ended(reply), seconds=RECOVERY_SECONDS, what="the reply goes on")
    return loaded


def test_a_reply_survives_the_death_of_each_process(running_node: RunningNode, ask: Ask) -> None:
    for victim, at in zip(VICTIMS, (3, 70, LENGTH - 2), strict=True):
        kill_in_mid_reply(running_node, victim, ask=ask, at=at, about=f"a {victim}")


def test_a_reply_survives_the_death_of_valkey(node_on_own_valkey: RunningNode, own_valkey: OwnValkey, ask: Ask) -> None:
    kill_valkey_in_mid_reply(own_valkey, ask=ask, at=40)


def kill_valkey_in_mid_reply(valkey: OwnValkey, *, ask: Ask, at: int) -> None:
    """One round: an undisturbed reply, then the same while Valkey is killed and comes back two seconds later."""
    undisturbed = ask("a parrot")
    wait_ended(undisturbed)
    reply, others = kill_at(valkey.kill, ask=ask, at=at, about="a parrot")
    time.sleep(2)
    assert not ended(*others)
    valkey.start()
    wait_ended(reply, *others)
    after, expected = row(reply), row(undisturbed)
    assert (after.output_ids, after.text, after.attempt) == (expected.output_ids, expected.text, 1)
    wait_for(lambda: len(stream_tail(reply.pk, after=0)) == LENGTH, seconds=5, what="the stream has all tokens")
    assert [entry.token_id for entry in stream_tail(reply.pk, after=0)] == expected.output_ids
    assert {row(other).state for other in others} == {GenerationState.DONE}


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("victim", VICTIMS)
def test_it_survives_many_deaths_before_during_and_after_checkpoints(
        running_node: RunningNode, ask: Ask, victim: str) -> None:
    for repeat in range(5):
        for at in (1 + repeat, 40 + 9 * repeat, LENGTH - 1 - repeat):
            kill_in_mid_reply(running_node, victim, ask=ask, at=at, about=f"round {repeat}")


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_it_survives_many_deaths_of_valkey(
        node_on_own_valkey: RunningNode, own_valkey: OwnValkey, ask: Ask) -> None:
    for at in (1, 30, 60, 90, LENGTH - 2):
        kill_valkey_in_mid_reply(own_valkey, ask=ask, at=at)

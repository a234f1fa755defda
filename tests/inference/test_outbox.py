"""What the engine tells of its steps, and when: firsts and ends at once, the rest in rounds, every token once."""

import random

from inference.outbox import LEAST_SECONDS, MOST_SECONDS, Outbox, joined
from inference.protocol import FinishReason, SequenceDelta, StepOutput, TokenLogprobs


class Told:
    """An outbox with a clock of its own, and what it sent."""

    def __init__(self) -> None:
        self.now = 0.0
        self.frames: list[tuple[int, StepOutput]] = []
        self.outbox = Outbox(lambda connection, frame: self.frames.append((connection, frame)), clock=lambda: self.now)

    def step(self, *deltas: SequenceDelta, after: float = 0.004, connection: int = 1) -> list[list[str]]:
        """Let a step pass; the names in each frame that it sent."""
        self.now += after
        before = len(self.frames)
        for delta in deltas:
            self.outbox.add(connection, delta)
        self.outbox.send_due()
        return [[delta.request_id for delta in frame.deltas] for _, frame in self.frames[before:]]


def token(name: str, index: int, finish: FinishReason | None = None) -> SequenceDelta:
    return SequenceDelta(request_id=name, index=index, token_ids=[index], texts=[f"<{index}>"], finish_reason=finish)


def test_first_tokens_and_ends_wait_for_nothing_and_the_rest_for_the_round() -> None:
    told = Told()
    told.step(after=1.0)  # a round has just passed
    assert told.step(token("a", 1)) == [["a"]]
    assert told.step(token("a", 2)) == []
    assert told.step(token("a", 3), token("b", 1)) == [["b"]]
    assert told.step(token("a", 4), token("b", 2, "stop")) == [["b"]]
    assert told.step(token("a", 5), after=LEAST_SECONDS) == [["a"]]
    assert [delta.token_ids for delta in told.frames[-1][1].deltas] == [[2, 3, 4, 5]]


def test_the_progress_of_a_prompt_is_told_at_once() -> None:
    told = Told()
    told.step(after=1.0)
    for done in (64, 128):
        assert told.step(SequenceDelta(request_id="a", index=0, phase="prefill", prefill_done=done)) == [["a"]]


def test_many_replies_are_told_of_less_often_but_ten_times_a_second() -> None:
    told = Told()
    names = [str(number) for number in range(100)]
    told.step(*(token(name, 1) for name in names), after=1.0)
    rounds = 0
    for index in range(2, 252):  # a second
        rounds += bool(told.step(*(token(name, index) for name in names)))
    assert 1 / MOST_SECONDS - 1 <= rounds <= 1 / MOST_SECONDS


def test_each_client_hears_of_its_own() -> None:
    told = Told()
    told.outbox.add(1, token("a", 1))
    told.outbox.add(2, token("b", 1))
    told.outbox.send_due()
    assert {connection: [delta.request_id for delta in frame.deltas] for connection, frame in told.frames} == {
        1: ["a"], 2: ["b"]}


def test_nothing_is_lost_doubled_or_turned_round() -> None:
    told, chance = Told(), random.Random(4)
    told_of: dict[str, list[int]] = {}
    lengths = {str(number): chance.randrange(1, 60) for number in range(40)}
    done = dict.fromkeys(lengths, 0)
    while left := [name for name in lengths if done[name] < lengths[name]]:
        deltas = []
        for name in chance.sample(left, min(len(left), 12)):
            done[name] += 1
            deltas.append(token(name, done[name], "length" if done[name] == lengths[name] else None))
        told.step(*deltas, after=chance.uniform(0, 0.03))
    for _, frame in told.frames:
        for delta in frame.deltas:
            told_of.setdefault(delta.request_id, []).extend(delta.token_ids)
            assert delta.index == told_of[delta.request_id][-1] and len(delta.texts) == len(delta.token_ids)
    assert told_of == {name: list(range(1, length + 1)) for name, length in lengths.items()}


def test_joined_deltas_keep_every_part() -> None:
    scores = [TokenLogprobs(token_id=number, logprob=-1.0, top={}) for number in range(4)]
    first = SequenceDelta(request_id="a", index=1, token_ids=[0], texts=["x"], logprobs=scores[:1],
                          prompt_logprobs=scores[2:3], phase="decoding")
    last = SequenceDelta(request_id="a", index=2, token_ids=[1], texts=["y"], logprobs=scores[1:2], tail="z",
                         prompt_logprobs=scores[3:], finish_reason="cancelled", error="e")
    both = joined(first, last)
    assert (both.index, both.token_ids, both.texts, both.tail) == (2, [0, 1], ["x", "y"], "z")
    assert (both.logprobs, both.prompt_logprobs) == (scores[:2], scores[2:])
    assert (both.finish_reason, both.error) == ("cancelled", "e")

"""Requests of different clients share batches, end exactly once, and can't hurt each other."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference.client import EngineLostError, EngineProcess
from inference.encoders.sentence import SentenceSpec
from inference.engine.pooling_loop import PoolingLoop
from inference.engine.pooling_model import PoolingModel
from inference.models.encoder_batch import Float32, TextBatch
from inference.pooled_calls import PoolingFailedError, RequestRejectedError
from inference.pooling.vectors import DensePooler
from inference.protocol import Embed, Embedded, EngineFrame, PoolingFailed, Rejected, Score, Submit
from inference.spec import EngineConfig, SamplingParams, SpecError
from inference.text.pooling import EmbeddingText
from tests.inference.encoders.tiny_encoders import tiny_encoder, write_modules, write_tokenizer

NAN_TOKEN = 9


class CountingEncoder:
    """An encoder whose hidden states are a token's id, and that remembers the lengths in each batch."""

    hidden_size, max_tokens, vocab_size, weights_bytes = 4, 50, 100, 0

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def encode(self, batch: TextBatch) -> Float32:
        self.batches.append(batch.lengths.tolist())
        if 13 in batch.token_ids:
            raise MemoryError("no memory for this batch")
        hidden = np.repeat(batch.token_ids.astype(np.float32)[:, None], 4, axis=1)
        hidden[batch.token_ids == NAN_TOKEN] = np.nan
        return hidden


def make_loop(budget: int = 10) -> tuple[PoolingLoop, CountingEncoder]:
    encoder, sentence = CountingEncoder(), SentenceSpec()
    model = PoolingModel(kind="embedding", encoder=encoder, sentence=sentence, pooler=DensePooler(sentence, []),
                         max_tokens=50)
    return PoolingLoop(model, max_batch_tokens=budget), encoder


def run(loop: PoolingLoop) -> list[Any]:
    return [reply for _ in range(200) if loop.has_work for reply in loop.step()]


def test_texts_of_several_requests_share_a_batch_longest_first() -> None:
    loop, encoder = make_loop()
    loop.submit(Embed(request_id="many", inputs=[[1] * 2] * 6))
    loop.submit(Embed(request_id="one", inputs=[[2] * 4]))
    replies = run(loop)
    assert encoder.batches == [[4, 2, 2, 2], [2, 2, 2]]
    assert [reply.request_id for reply in replies] == ["one", "many"]  # the short request did not wait for the long
    assert [np.frombuffer(item.dense, "<f4")[0] for item in replies[1].items] == [1] * 6
    assert not loop.has_work and loop.stats(0).steps == 2 and loop.stats(0).prompt_tokens == 16


def test_answers_keep_the_order_of_inputs() -> None:
    loop, _ = make_loop(7)
    inputs = [[3] * 2, [5] * 6, [7], [8] * 20]  # one text may be over the budget
    loop.submit(Embed(request_id="a", inputs=inputs))
    (reply,) = run(loop)
    assert [np.frombuffer(item.dense, "<f4")[0] for item in reply.items] == [3, 5, 7, 8]
    assert [item.tokens for item in reply.items] == [2, 6, 1, 20]


def test_urgent_requests_go_first() -> None:
    loop, _ = make_loop(4)
    loop.submit(Embed(request_id="later", inputs=[[1] * 4], priority=1))
    loop.submit(Embed(request_id="now", inputs=[[1] * 4]))
    assert [reply.request_id for reply in run(loop)] == ["now", "later"]


def test_a_cancelled_request_ends_once_and_the_other_is_answered() -> None:
    loop, _ = make_loop(4)
    loop.submit(Embed(request_id="a", inputs=[[1] * 4] * 3))
    loop.submit(Embed(request_id="b", inputs=[[1] * 4]))
    loop.step()
    assert loop.cancel("a") == PoolingFailed(request_id="a", reason="cancelled", cancelled=True)
    assert loop.cancel("a") is None
    assert [type(reply) for reply in run(loop)] == [Embedded]


@pytest.mark.parametrize("token", [NAN_TOKEN, 13])
def test_what_fails_is_one_request(token: int) -> None:
    loop, _ = make_loop(4)
    loop.submit(Embed(request_id="bad", inputs=[[token] * 4, [1] * 4]))
    loop.submit(Embed(request_id="good", inputs=[[1] * 4]))
    kinds = {reply.request_id: type(reply) for reply in run(loop)}
    assert kinds == {"bad": PoolingFailed, "good": Embedded} and not loop.has_work


@pytest.mark.parametrize(("frame", "words"), [
    (Embed(request_id="x", inputs=[]), "inputs: has 0 entries"),
    (Embed(request_id="x", inputs=[[]]), "entry 0 has 0 tokens, and must have 1 to 50"),
    (Embed(request_id="x", inputs=[[1], [1] * 51]), "entry 1 has 51 tokens"),
    (Embed(request_id="x", inputs=[[-1]]), "token id outside of 0 to 99"),
    (Embed(request_id="x", inputs=[[100]]), "token id outside of 0 to 99"),
    (Embed(request_id="x", inputs=[[1]], outputs=["sparse"]), "no sparse output; it has: dense, multi_vector"),
    (Embed(request_id="x", inputs=[[1]], outputs=["dense", "dense"]), "outputs: must name each"),
    (Embed(request_id="x", inputs=[[1]], dimensions=2), "declares no dimensions"),
    (Embed(request_id="x", inputs=[[1]] * 5000), "inputs: has 5,000 entries"),
    (Score(request_id="x", method="cross_encoder", documents=[[1]]), "does not score by cross_encoder"),
    (Score(request_id="x", method="cosine", documents=[[1]], queries=[]), "queries: has 0 entries"),
    (Score(request_id="x", method="cosine", documents=[[1]] * 3, queries=[[1]] * 2), "make no pairs"),
])
def test_what_cannot_be_answered_is_refused_by_field(frame: Any, words: str) -> None:
    loop, _ = make_loop()
    with pytest.raises(SpecError, match=words):
        loop.submit(frame)
    assert not loop.has_work


@pytest.mark.slow
def test_the_process_serves_several_askers_and_ends_their_questions_when_it_is_lost(tmp_path: Path) -> None:
    tiny_encoder("bert").save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    write_modules(tmp_path, {"pooling_mode_mean_tokens": True})
    frames: list[EngineFrame] = []
    arrived, lost = threading.Event(), threading.Event()

    def on_frame(frame: EngineFrame) -> None:
        frames.append(frame)
        arrived.set()

    config = EngineConfig(model=str(tmp_path), mode="float32", threads=1)
    engine = EngineProcess.start(config, socket_dir=tmp_path / "s", on_frame=on_frame, on_lost=lambda _: lost.set())
    try:
        ready = engine.wait_ready(300)
        assert (ready.kind, ready.embedding_size, ready.outputs) == ("embedding", 64, ["dense", "multi_vector"])
        ids = EmbeddingText.from_path(tmp_path).encode(["the cat sat", "paris"]).ids
        futures = [engine.pool(Embed(request_id=f"r{index}", inputs=ids)) for index in range(20)]
        vectors = {item.dense for future in futures for item in future.result(60).items}  # type: ignore[union-attr]
        assert len(vectors) == 2
        with pytest.raises(RequestRejectedError, match="token id outside"):
            engine.pool(Embed(request_id="bad", inputs=[[10_000]])).result(60)
        engine.submit(Submit(request_id="chat", prompt_ids=[1], params=SamplingParams(max_tokens=1)))
        assert arrived.wait(60) and isinstance(frames[0], Rejected) and "does not write replies" in frames[0].reason
        stats = engine.stats()
        assert (stats.running, stats.waiting) == (0, 0) and stats.prompt_tokens == 20 * sum(map(len, ids))
        slow = engine.pool(Embed(request_id="slow", inputs=[[5] * 290] * 4000))
        engine.cancel("slow")
        with pytest.raises(PoolingFailedError) as ended:
            slow.result(120)
        assert ended.value.cancelled
        unanswered = engine.pool(Embed(request_id="open", inputs=[[5] * 290] * 4000))
        engine._process.kill()
        with pytest.raises(EngineLostError):
            unanswered.result(60)
        assert lost.wait(60)
    finally:
        engine.stop()

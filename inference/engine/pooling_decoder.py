"""Embedding and rerank models that are decoders: states of whole texts, and the answer to yes-or-no questions."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from inference.artifacts.errors import ArtifactError
from inference.artifacts.source import ModelSource
from inference.artifacts.tensors import TensorInfo
from inference.encoders.sentence import DECODER_TOKENS, SentenceSpec
from inference.engine.batch import StepBatch
from inference.engine.pooling_model import PoolingModel
from inference.engine.runner import thread_count
from inference.engine.torch_runner import TorchRunner, load_torch_runner
from inference.models.encoder_batch import Float32, TextBatch
from inference.pooling.scores import YesNoHead
from inference.pooling.vectors import DensePooler
from inference.protocol import LoadPhase
from inference.spec import EngineConfig, EngineKind
from inference.text.tokenizer import TextTokenizer

OnProgress = Callable[[LoadPhase, int, int], None]

BASE_PREFIX, HEAD = "model.", "lm_head.weight"


class DecoderEncoder:
    """A causal decoder as an encoder: texts are prefilled whole, in blocks of the pool that the next batch reuses."""

    def __init__(self, runner: TorchRunner, hidden_size: int) -> None:
        self._runner = runner
        self.hidden_size, self.vocab_size = hidden_size, runner.vocab_size
        self.max_tokens = min(runner.max_model_len, runner.num_blocks * runner.block_size)
        self.weights_bytes = runner.weights_bytes

    def encode(self, batch: TextBatch) -> Float32:
        """Return the state of every token behind the final norm, [tokens, hidden]."""
        runs = _runs(batch.lengths.tolist(), self._runner.block_size, self._runner.num_blocks)
        return np.concatenate([self._runner.hidden_states(self._step(batch, first, last)) for first, last in runs])

    def _step(self, batch: TextBatch, first: int, last: int) -> StepBatch:
        """Lay texts [first, last) out as sequences that begin, each in blocks of its own from block 0 on."""
        size = self._runner.block_size
        start, stop = batch.starts[first], batch.starts[last]
        lengths = batch.lengths[first:last]
        blocks = -(-lengths // size)
        begins = np.concatenate([[0], np.cumsum(blocks)[:-1]]).astype(np.int32)
        tables = begins[:, None] + np.arange(blocks.max(), dtype=np.int32)[None]
        tables[np.arange(tables.shape[1])[None] >= blocks[:, None]] = -1
        positions = batch.positions[start:stop]
        return StepBatch(
            token_ids=batch.token_ids[start:stop], positions=positions,
            slots=(np.repeat(begins, lengths) * size + positions).astype(np.int32),
            query_starts=(batch.starts[first : last + 1] - start).astype(np.int32),
            context_lens=lengths.astype(np.int32), block_tables=tables.astype(np.int32),
            logit_rows=np.zeros(0, np.int32),
        )  # fmt: skip


def _runs(lengths: list[int], block_size: int, num_blocks: int) -> list[tuple[int, int]]:
    """Cut texts into runs [first, last) whose blocks fit the pool at once."""
    runs, first, used = [], 0, 0
    for index, length in enumerate(lengths):
        blocks = -(-length // block_size)
        if used + blocks > num_blocks:
            runs.append((first, index))
            first, used = index, 0
        used += blocks
    return [*runs, (first, len(lengths))]


class _BaseSource(ModelSource):
    """A source whose tensors have the names of a causal model, also where the base model alone was saved."""

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        bare = not any(name.startswith(BASE_PREFIX) for name in source.tensors)
        self._stored = {(BASE_PREFIX + name if bare and name != HEAD else name): name for name in source.tensors}
        self.tensors = {
            name: TensorInfo(name, info.dtype, info.shape, info.nbytes)
            for name, info in ((name, source.tensors[stored]) for name, stored in self._stored.items())
        }
        self.generation_config, self.activations = source.generation_config, source.activations
        tied = {} if HEAD in self.tensors else {"tie_word_embeddings": True}  # there is no head to read
        self.config = source.config | tied

    def read_raw(self, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        return self._source.read_raw(self._stored[name])

    def read_float32(self, name: str) -> Float32:
        return self._source.read_float32(self._stored[name])


def decoder_model(config: EngineConfig, kind: EngineKind, source: ModelSource, sentence: SentenceSpec,
                  pooler: Callable[[int], DensePooler], tokenizer: TextTokenizer, on_progress: OnProgress
                  ) -> tuple[PoolingModel, str, int]:
    """Return a decoder as an embedding or rerank model, the mode it runs in, and the multiply-adds of a token.

    Raises ArtifactError or SpecError.
    """
    base = _BaseSource(source)
    spec = base.decoder_spec()
    limit = min(spec.max_position, config.max_model_len or sentence.max_tokens or DECODER_TOKENS)
    # One sequence of the longest size: the pool is scratch here, and a batch takes as many runs as it needs.
    limits = replace(config, max_model_len=limit, max_num_seqs=1)
    runner = load_torch_runner(base, spec, limits, max_model_len=limit, threads=thread_count(config),
                               on_bytes=lambda done, total: on_progress("reading", done, total))
    encoder = DecoderEncoder(runner, spec.hidden_size)
    model = PoolingModel(
        kind=kind, encoder=encoder, sentence=sentence, max_tokens=min(limit, encoder.max_tokens),
        pooler=pooler(spec.hidden_size), yes_no=_yes_no(base, sentence, tokenizer) if kind == "rerank" else None,
    )
    weights = sum(int(np.prod(info.shape)) for name, info in base.tensors.items() if "embed" not in name)
    return model, runner.mode, weights


def _yes_no(source: ModelSource, sentence: SentenceSpec, tokenizer: TextTokenizer) -> YesNoHead:
    """Read the head's rows of the two labels: those that a LogitScore module names, else the tokens no and yes."""
    labels = (sentence.false_token_id, sentence.true_token_id)
    ids = labels if None not in labels else (tokenizer.token_id("no"), tokenizer.token_id("yes"))
    name = HEAD if HEAD in source.tensors else "model.embed_tokens.weight"
    table = source.read_float32(name)
    if any(token is None or token >= len(table) for token in ids):
        raise ArtifactError("tokenizer.json", "has no tokens 'no' and 'yes', whose logits would be the score")
    return YesNoHead(np.array(table[[token for token in ids if token is not None]], np.float32))

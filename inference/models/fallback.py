"""Any causal model of transformers, run by its own code: over our paged cache where that gives the same, else with a
cache of its own for each request."""

import inspect
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, DynamicCache

from inference.artifacts.errors import ArtifactError
from inference.engine.batch import StepBatch
from inference.layers.step import StepTensors
from inference.models.fallback_attention import NAME, PagedCaches, attending

logger = logging.getLogger(__name__)

PROBE_LENGTHS = (9, 14)  # tokens of the two sequences that a model is tried with
PROBE_TOLERANCE = 1e-3  # of the largest logit
PROBE_BLOCK = 16


def load_model(folder: Path) -> Any:
    """Return transformers' model in float32, from safetensors. Raises ArtifactError; no code of the model's is run."""
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=torch.float32, trust_remote_code=False, local_files_only=True, use_safetensors=True,
            output_loading_info=True, ignore_mismatched_sizes=True,  # they are refused below, by name
        )  # fmt: skip
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise ArtifactError("config.json", f"transformers can't load this model: {str(error)[:300]}") from None
    for kind, words in (("missing_keys", "is missing"), ("unexpected_keys", "is not one of this architecture")):
        for key in sorted(map(str, info[kind])):
            raise ArtifactError("weights", f"tensor {key[:200]!r} {words}")
    for name, stored, expected in info["mismatched_keys"]:
        raise ArtifactError("weights", f"tensor {name[:200]!r} has the shape {list(stored)}, expected {list(expected)}")
    return model.eval()


def _accepts(model: Any, name: str) -> bool:
    return name in inspect.signature(model.forward).parameters


class PagedModel:
    """A model of transformers whose attention goes over the paged pool; all sequences of a step in one call."""

    def __init__(self, model: Any, caches: PagedCaches) -> None:
        self.model, self.caches = model, caches
        self._keeps_rows = _accepts(model, "logits_to_keep")

    def __call__(self, step: StepTensors, logit_rows: Tensor) -> Tensor:
        """Return logits [rows, vocabulary] of the step's rows."""
        kept = {"logits_to_keep": logit_rows} if self._keeps_rows else {}
        with attending(step, self.caches):
            out = self.model(input_ids=step.token_ids[None], position_ids=step.positions[None], use_cache=False, **kept)
        logits: Tensor = out.logits[0]
        return logits if self._keeps_rows else logits[logit_rows]


@dataclass
class _Text:
    """One request's cache and how many of its tokens are in it."""

    cache: Any
    length: int = 0


class CachedModel:
    """A model of transformers that keeps a cache of its own kind for each request, found by its first block.

    Sequences run one after the other, and a state that can't take several tokens at once takes them one by one.
    """

    def __init__(self, model: Any) -> None:
        if not _accepts(model, "cache") or not model._supports_default_dynamic_cache():
            raise ArtifactError("config.json", f"the architecture {model.config.model_type!r} keeps its state in a way "
                                               "that can't be continued token by token here")
        self.model = model
        self._config = model.config.get_text_config(decoder=True)
        self._stateful = bool(getattr(model, "_is_stateful", False)) or any(DynamicCache(config=self._config).is_linear)
        self._texts: dict[int, _Text] = {}

    def __call__(self, batch: StepBatch) -> Tensor:
        """Return logits [rows, vocabulary] of the batch's logit_rows. Raises ValueError for a text without a cache."""
        results = []
        for sequence, (first, last) in enumerate(zip(batch.query_starts[:-1], batch.query_starts[1:], strict=True)):
            wanted = batch.logit_rows[(batch.logit_rows >= first) & (batch.logit_rows < last)] - first
            logits = self._run(int(batch.block_tables[sequence, 0]), batch.token_ids[first:last],
                               int(batch.positions[first]))
            results.append(logits[torch.from_numpy(wanted.astype(np.int64))])
        return torch.cat(results)

    def release(self, first_block: int) -> None:
        """Forget the request whose first block this is."""
        self._texts.pop(first_block, None)

    def _run(self, first_block: int, token_ids: Any, start: int) -> Tensor:
        if start == 0:
            self._texts[first_block] = _Text(DynamicCache(config=self._config))
        text = self._texts.get(first_block)
        if text is None or text.length != start:
            raise ValueError("a request goes on from where its own cache doesn't end")
        size = 1 if self._stateful and start else len(token_ids)
        logits = []
        for at in range(0, len(token_ids), size):
            ids = torch.from_numpy(np.array(token_ids[at : at + size], np.int64))[None]
            logits.append(self.model(input_ids=ids, cache=text.cache, use_cache=True).logits[0])
        text.length += len(token_ids)
        return torch.cat(logits)


def check_continues(model: CachedModel) -> None:
    """Raise ArtifactError unless two texts that take turns, one token at a time in the end, give what each gives alone.

    Some models keep state in their modules, or can't go on from a cache.
    """
    ids = _probe_texts(model.model)
    with torch.inference_mode():
        try:
            wanted = [model.model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1] for text in ids]
            for part in (slice(0, 6), slice(6, -1), slice(-1, None)):
                got = [model._run(block, text[part], len(text[: part.start]))[-1] for block, text in enumerate(ids)]
        except Exception as error:  # whatever a model of transformers may raise when it is asked for what it can't
            raise ArtifactError("config.json", f"the architecture {model.model.config.model_type!r} can't go on from "
                                               f"a cache: {str(error)[:200]}") from None
    for block, (logits, reference) in enumerate(zip(got, wanted, strict=True)):
        model.release(block)
        if not (logits - reference).abs().max() <= PROBE_TOLERANCE * reference.abs().max():
            raise ArtifactError("config.json", f"the architecture {model.model.config.model_type!r} gives other "
                                               "results when texts take turns, so it can't serve several people")


def _probe_texts(model: Any) -> list[list[int]]:
    rng, vocabulary = np.random.default_rng(0), model.config.get_text_config(decoder=True).vocab_size
    return [rng.integers(0, vocabulary, length).tolist() for length in PROBE_LENGTHS]


def _probe_step(lengths: list[int], done: list[int], ids: list[list[int]]) -> StepTensors:
    """Return the step that takes each probe text from done to lengths tokens; text i lies in block i."""
    counts = [length - before for length, before in zip(lengths, done, strict=True)]
    sequence = np.repeat(np.arange(len(counts)), counts)
    positions = np.concatenate([np.arange(before, length) for before, length in zip(done, lengths, strict=True)])
    tokens = [ids[text][at] for text, at in zip(sequence, positions, strict=True)]
    as_tensor = torch.from_numpy
    return StepTensors(
        token_ids=torch.tensor(tokens), positions=as_tensor(positions),
        slots=as_tensor(sequence * PROBE_BLOCK + positions), sequence_of=as_tensor(sequence),
        query_starts=torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32),
        context_lens=torch.tensor(lengths, dtype=torch.int32),
        block_tables=torch.arange(len(lengths), dtype=torch.int32)[:, None], rotary=(), max_query=max(counts),
        max_context=max(lengths),
    )  # fmt: skip


def pages_of(model: Any) -> PagedCaches | None:
    """Return the shape of a model's cache in pages, if over pages it gives what it gives alone; else None.

    Two texts run together, in two steps, and their last logits are compared with those of each text alone. Afterwards
    the model is set to paged attention if it passed, and to its usual one if not.
    """
    config, usual = model.config.get_text_config(decoder=True), model.config._attn_implementation
    kinds = getattr(config, "layer_types", None) or ()
    if not model._supports_attention_backend or getattr(model, "_is_stateful", False):
        return None
    if "chunked_attention" in kinds or not _accepts(model, "position_ids"):
        return None
    ids = _probe_texts(model)
    with torch.inference_mode():
        wanted = torch.stack([model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1] for text in ids])
        caches = PagedCaches(num_blocks=len(ids), block_size=PROBE_BLOCK)
        try:
            model.set_attn_implementation(NAME)
            paged, lengths = PagedModel(model, caches), list(PROBE_LENGTHS)
            before = [length - 1 for length in lengths]
            paged(_probe_step(before, [0] * len(ids), ids), torch.tensor([0]))
            got = paged(_probe_step(lengths, before, ids), torch.arange(len(ids)))
        except Exception as error:  # whatever a model of transformers may raise when it is asked for what it can't
            logger.info("%s doesn't run over the paged cache: %s", config.model_type, error)
            model.set_attn_implementation(usual)
            return None
    if not caches.layers or (got - wanted).abs().max() > PROBE_TOLERANCE * wanted.abs().max():
        logger.info("%s gives other logits over the paged cache", config.model_type)
        model.set_attn_implementation(usual)
        return None
    return caches

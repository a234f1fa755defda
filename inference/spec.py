"""Frozen, self-validating specs that every side of the engine agrees on: how to sample, what to load, which limits."""

import math
from dataclasses import dataclass
from typing import Literal

Mode = Literal["float32", "int8"]
"""A numeric recipe, fixed at load: `float32` is the reference, `int8` reads 8-bit weights with float32 activations."""

EngineKind = Literal["chat", "embedding", "rerank"]

ConstraintKind = Literal["json_schema", "json_object", "regex", "choice", "grammar"]

CONSTRAINT_KINDS: tuple[ConstraintKind, ...] = ("json_schema", "json_object", "regex", "choice", "grammar")

Device = Literal["cpu", "cuda"]

DEVICES: tuple[Device, ...] = ("cpu", "cuda")

MODES: tuple[Mode, ...] = ("float32", "int8")

ENGINE_KINDS: tuple[EngineKind, ...] = ("chat", "embedding", "rerank")

MAX_STOP_STRINGS = 16
MAX_STOP_STRING_CHARS = 256
MAX_STOP_TOKEN_IDS = 256
MAX_CONSTRAINT_BYTES = 64 * 1024
MAX_LOGPROBS = 20
MAX_LOGIT_BIASES = 1024
GREEDY_BELOW = 1e-4  # a temperature under this is greedy: dividing by it would overflow float32


class SpecError(ValueError):
    """A value that a caller gave and that cannot be served. `field` names it; the message is written for people."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def _require(condition: bool, field: str, message: str) -> None:
    if not condition:
        raise SpecError(field, message)


def _finite(value: float) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)


def _whole(value: int) -> bool:
    return not isinstance(value, bool) and isinstance(value, int)


def _require_between(value: float, low: float, high: float, field: str) -> None:
    _require(_finite(value) and low <= value <= high, field, f"must be between {low:g} and {high:g}")


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """What the text of a reply must be. inference.text.constraint says whether it can be compiled.

    text: for json_schema a JSON schema, for json_object nothing, for regex a regular expression that matches the whole
    reply, for choice a JSON list of strings, for grammar one in Lark's notation or llama.cpp's GBNF. Raises SpecError.
    """

    kind: ConstraintKind
    text: str = ""

    def __post_init__(self) -> None:
        _require(self.kind in CONSTRAINT_KINDS, "constraint", f"the kind must be one of {', '.join(CONSTRAINT_KINDS)}")
        _require(isinstance(self.text, str), "constraint", "the text must be a string")
        size = len(self.text.encode("utf-8", "surrogatepass"))
        _require(size <= MAX_CONSTRAINT_BYTES, "constraint",
                 f"has {size:,} bytes, and at most {MAX_CONSTRAINT_BYTES:,} are taken")


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How the tokens of one request are drawn. Sampling is a pure function of (logits, this, tokens so far, position).

    temperature: 0 (or below 1e-4) is greedy. top_k: 0 or -1 is off. top_p: 1 is off. min_p: 0 is off.
    repetition_penalty: over prompt and output, 1 is off. presence_penalty, frequency_penalty: over output, 0 is off.
    logit_bias: (token id, -100 to 100) pairs. seed: 63-bit, always set, so that any reply can be drawn again.
    max_tokens: most new tokens, at least 1. min_tokens: so many tokens never end the reply, by end id, stop id or stop
    string. stop: strings that end the reply. stop_token_ids: ids that end it, besides the model's own.
    include_stop: whether the text that ended the reply is part of it. ignore_eos: go on past the model's own end ids.
    skip_special_tokens: control tokens have no text in the reply (a stop string finds them all the same).
    logprobs: with each token its log-probability and those of so many likeliest, before everything above; None is off.
    prompt_logprobs: the same for the prompt's tokens. constraint: what the reply's text must be. Raises SpecError.
    """

    max_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    include_stop: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        _require_between(self.temperature, 0, 100, "temperature")
        _require(_whole(self.top_k) and self.top_k >= -1, "top_k", "must be -1, 0 or a positive whole number")
        _require_between(self.top_p, 0, 1, "top_p")
        _require_between(self.min_p, 0, 1, "min_p")
        _require_between(self.repetition_penalty, 0.01, 100, "repetition_penalty")
        _require_between(self.presence_penalty, -2, 2, "presence_penalty")
        _require_between(self.frequency_penalty, -2, 2, "frequency_penalty")
        _require(_whole(self.seed) and 0 <= self.seed < 2**63, "seed", "must be between 0 and 2**63 - 1")
        _require(_whole(self.max_tokens) and self.max_tokens >= 1, "max_tokens", "must be at least 1")
        _require(_whole(self.min_tokens) and 0 <= self.min_tokens <= self.max_tokens, "min_tokens",
                 "must be between 0 and max_tokens")
        _require(self.constraint is None or isinstance(self.constraint, Constraint), "constraint",
                 "must be a kind and a text")
        _require(self.constraint is None or not self.ignore_eos, "ignore_eos",
                 "can't be set together with a constraint, which decides where the reply may end")
        self._check_stops()
        self._check_logit_bias()
        for field in ("logprobs", "prompt_logprobs"):
            count = getattr(self, field)
            _require(count is None or (_whole(count) and 0 <= count <= MAX_LOGPROBS), field,
                     f"must be between 0 and {MAX_LOGPROBS}")

    def _check_stops(self) -> None:
        _require(len(self.stop) <= MAX_STOP_STRINGS, "stop", f"at most {MAX_STOP_STRINGS} stop strings")
        for text in self.stop:
            _require(isinstance(text, str) and 0 < len(text) <= MAX_STOP_STRING_CHARS, "stop",
                     f"each stop string has 1 to {MAX_STOP_STRING_CHARS} characters")
        _require(len(self.stop_token_ids) <= MAX_STOP_TOKEN_IDS, "stop_token_ids", f"at most {MAX_STOP_TOKEN_IDS} ids")
        _require(all(map(_whole, self.stop_token_ids)), "stop_token_ids", "must be whole numbers")

    def _check_logit_bias(self) -> None:
        field = "logit_bias"
        _require(len(self.logit_bias) <= MAX_LOGIT_BIASES, field, f"at most {MAX_LOGIT_BIASES:,} token ids")
        _require(all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in self.logit_bias), field,
                 "must be pairs of a token id and a number")
        _require(len({token_id for token_id, _ in self.logit_bias}) == len(self.logit_bias), field,
                 "each token id may be given once")
        for token_id, bias in self.logit_bias:
            _require(_whole(token_id), field, "token ids must be whole numbers")
            _require_between(bias, -100, 100, field)

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """What one engine process loads and the limits it runs under.

    model: a folder with config.json, tokenizer.json and safetensors, or one GGUF file.
    kind: what the model is for; None takes what its files say (inference.encoders.kind).
    max_model_len: most tokens of prompt and reply together; None takes the model's own.
    max_num_seqs: most requests in one step. max_num_batched_tokens: the token budget of a step (decode and prefill).
    block_size: tokens in one KV block. kv_cache_bytes: None sizes the pool from the limits above, within free memory.
    threads: CPU threads; 0 takes every core. device: cuda runs in bfloat16, or in float32 if that is the mode.
    max_adapters: most LoRA adapters that are loaded beside the model at a time; 0 takes none. speculation: guess
    further tokens and verify several in a step where that pays; replies are the same with and without.

    Raises SpecError.
    """

    model: str
    kind: EngineKind | None = None
    mode: Mode = "int8"
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 256
    block_size: int = 16
    kv_cache_bytes: int | None = None
    threads: int = 0
    device: Device = "cpu"
    max_adapters: int = 0
    speculation: bool = True

    def __post_init__(self) -> None:
        _require(self.device in DEVICES, "device", f"must be one of {', '.join(DEVICES)}")
        _require(self.max_adapters >= 0, "max_adapters", "must not be negative")
        _require(self.kind is None or self.kind in ENGINE_KINDS, "kind", f"must be one of {', '.join(ENGINE_KINDS)}")
        _require(self.mode in MODES, "mode", f"must be one of {', '.join(MODES)}")
        _require(self.max_model_len is None or self.max_model_len >= 2, "max_model_len", "must be at least 2")
        _require(self.max_num_seqs >= 1, "max_num_seqs", "must be at least 1")
        _require(self.max_num_batched_tokens >= self.max_num_seqs, "max_num_batched_tokens",
                 "must be at least max_num_seqs")
        _require(self.block_size >= 1 and self.block_size & (self.block_size - 1) == 0, "block_size",
                 "must be a power of two")
        _require(self.threads >= 0, "threads", "must not be negative")

"""The frames between an engine process and its client: msgpack over a Unix socket, each behind a 4-byte length.

Frame on the wire: uint32 big-endian length, then one msgpack-encoded tagged struct. A frame over MAX_FRAME_BYTES
ends the connection. Client to engine: Submit, Embed, Score, Cancel, LoadAdapter, UnloadAdapter, StatsRequest, Shutdown.
Engine to client: Loading, then Ready or LoadFailed; after Ready one StepOutput a step; Rejected, AdapterChanged and
Stats as answers. An engine that embeds or scores (Ready.kind) takes Embed and Score instead of Submit and answers each
with one Embedded, Scored, PoolingFailed or Rejected.

Indexes count output tokens from 1: the n-th output token of a request has index n. A resumed request (Submit with
output_ids of length k) goes on with index k + 1.
"""

import struct
from typing import Literal

import msgspec

from inference.spec import EngineKind, SamplingParams

MAX_FRAME_BYTES = 64 * 1024 * 1024
HEADER = struct.Struct(">I")

FinishReason = Literal["stop", "length", "cancelled", "failed"]
RequestPhase = Literal["waiting", "prefill", "decoding"]
LoadPhase = Literal["reading", "packing", "warming"]
EmbeddingOutput = Literal["dense", "sparse", "multi_vector"]
ScoreMethod = Literal["cross_encoder", "yes_no", "late_interaction", "cosine"]


class Submit(msgspec.Struct, tag="submit", frozen=True, kw_only=True):
    """Start a request, or go on with one whose first tokens (output_ids) somebody may have seen."""

    request_id: str
    prompt_ids: list[int]
    params: SamplingParams
    output_ids: list[int] = []
    priority: int = 0  # lower runs first; 0 interactive, 1 background
    adapter: str = ""  # the name of a loaded LoRA adapter; empty is the model alone


class Embed(msgspec.Struct, tag="embed", frozen=True, kw_only=True):
    """Turn texts into vectors. The caller has tokenised them (inference.text.pooling), special tokens included.

    inputs: token ids of each text, 1 to max_model_len each. outputs: what to return of each, without doubles.
    dimensions: cut dense vectors to their first so many elements (for models that declare it) and normalise them again.
    normalise: None does as the model's files say. prompt_tokens: how many of each input's first tokens are an
    instruction that the model's pooling leaves out; 0 for models that pool over it too.
    """

    request_id: str
    inputs: list[list[int]]
    outputs: list[EmbeddingOutput] = msgspec.field(default_factory=lambda: ["dense"])
    dimensions: int | None = None
    normalise: bool | None = None
    prompt_tokens: int = 0
    priority: int = 0  # lower runs first


class Score(msgspec.Struct, tag="score", frozen=True, kw_only=True):
    """Score pairs of query and document. The caller has tokenised and truncated them (inference.text.pairs).

    documents: for cross_encoder and yes_no the whole sequences, query and template included; for late_interaction and
    cosine the documents alone. second_from: for cross_encoder, where each sequence's second segment starts (its token
    types are 1 from there on); empty when all are 0. queries: for late_interaction and cosine, one query for all
    documents or one for each. raw: the model's logit, without the activation that its files name.
    """

    request_id: str
    method: ScoreMethod
    documents: list[list[int]]
    queries: list[list[int]] = []
    second_from: list[int] = []
    raw: bool = False
    priority: int = 0


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """End a request within one step. Unknown ids are ignored: the request may just have ended."""

    request_id: str


class LoadAdapter(msgspec.Struct, tag="load_adapter", frozen=True):
    """Load a LoRA adapter from a folder under a name, in place of what had that name; answered by AdapterChanged."""

    request_key: int
    name: str
    path: str


class UnloadAdapter(msgspec.Struct, tag="unload_adapter", frozen=True):
    """Let no new request name an adapter; those that use it go on. Answered by AdapterChanged."""

    request_key: int
    name: str


class StatsRequest(msgspec.Struct, tag="stats_request", frozen=True):
    """Ask for Stats. experts: with the load of each expert, thousands of numbers for a large model."""

    request_key: int = 0
    experts: bool = False


class Shutdown(msgspec.Struct, tag="shutdown", frozen=True):
    pass


class Loading(msgspec.Struct, tag="loading", frozen=True, kw_only=True):
    """Progress of loading: done of total, in bytes for `reading` and `packing`, in kernels for `warming`."""

    phase: LoadPhase
    done: int
    total: int


class Ready(msgspec.Struct, tag="ready", frozen=True, kw_only=True):
    """The engine takes requests. Sizes in tokens, memory in bytes, time in seconds.

    An engine that embeds or scores has no blocks and no KV cache. outputs and embedding_size: what it embeds to;
    methods: how it scores, the model's own way first. mode: the numeric recipe that runs; notes: what differs from what
    was asked for or from the usual, a line each.
    """

    kind: EngineKind = "chat"
    outputs: list[EmbeddingOutput] = []
    embedding_size: int = 0
    methods: list[ScoreMethod] = []
    mode: str
    notes: list[str] = []
    max_model_len: int
    max_num_seqs: int
    block_size: int
    num_blocks: int
    weights_bytes: int
    kv_cache_bytes: int
    load_seconds: float
    pid: int


class AdapterChanged(msgspec.Struct, tag="adapter_changed", frozen=True, kw_only=True):
    """An adapter was loaded or unloaded. digest: of its content, in hex. error: why it wasn't; then nothing changed."""

    request_key: int
    name: str
    digest: str = ""
    error: str = ""


class LoadFailed(msgspec.Struct, tag="load_failed", frozen=True):
    reason: str


class Rejected(msgspec.Struct, tag="rejected", frozen=True, kw_only=True):
    """A Submit, Embed or Score that was not queued; nothing else will be said of that request."""

    request_id: str
    reason: str
    field: str = ""


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds spent in each phase of one request inside the engine, and what was computed.

    queue_s: submit to first scheduled. prefill_s: first scheduled to first token. decode_s: first to last token.
    cached_tokens: prompt tokens taken from the prefix cache.
    """

    queue_s: float
    prefill_s: float
    decode_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


class TokenLogprobs(msgspec.Struct, frozen=True):
    """One token's natural log-probability, and the likeliest tokens by id, likeliest first (lowest id on a tie).

    Of the model's own distribution over all rows of its embedding: before temperature, penalties, bias and filters.
    """

    token_id: int
    logprob: float
    top: dict[int, float]


class SequenceDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What a step, or a few, brought for one request.

    token_ids: new tokens; the last has index `index`. A delta without tokens only reports phase or end.
    text: exactly the text that these tokens add for a reader (held-back text comes with a later delta). Concatenated
    over all deltas it is the decoded whole. end ids and stop strings add no text, unless include_stop asks for it.
    logprobs: one per token, when the request asks for them. prompt_logprobs: of the prompt's second token and those
    after it, in order over the deltas, told before or with the first output token, and not again by a resumed request.
    """

    request_id: str
    index: int  # output tokens so far, these included
    token_ids: list[int] = []
    texts: list[str] = []  # one per token: texts[i] is what token_ids[i] added
    phase: RequestPhase = "decoding"
    prefill_done: int = 0  # prompt tokens computed, while phase is prefill
    finish_reason: FinishReason | None = None
    tail: str = ""  # text still held back, released at the end without a token (cancelled)
    error: str = ""
    timings: Timings | None = None  # at the end
    logprobs: list[TokenLogprobs] = []
    prompt_logprobs: list[TokenLogprobs] = []


class StepOutput(msgspec.Struct, tag="step", frozen=True, kw_only=True):
    """What engine steps brought since the last frame; see inference.outbox."""

    deltas: list[SequenceDelta]


class Vectors(msgspec.Struct, frozen=True, kw_only=True):
    """What one text became; the arrays are little-endian float32, those that were not asked for are empty.

    dense: [size]. sparse_weights: [k], the lexical weight of each of the k token ids in sparse_ids. multi_vector:
    [rows, multi_vector_size], one normalised row a token. tokens: how many the text has.
    """

    dense: bytes = b""
    sparse_ids: list[int] = []
    sparse_weights: bytes = b""
    multi_vector: bytes = b""
    multi_vector_size: int = 0
    tokens: int = 0


class Embedded(msgspec.Struct, tag="embedded", frozen=True, kw_only=True):
    """The answer to an Embed: items in the order of its inputs. Seconds from arrival to first and to last batch."""

    request_id: str
    items: list[Vectors]
    queue_s: float
    total_s: float


class Scored(msgspec.Struct, tag="scored", frozen=True, kw_only=True):
    """The answer to a Score: little-endian float32 [documents], and how they were made. tokens: of each document."""

    request_id: str
    method: ScoreMethod
    scores: bytes
    tokens: list[int]
    queue_s: float
    total_s: float


class PoolingFailed(msgspec.Struct, tag="pooling_failed", frozen=True, kw_only=True):
    """An Embed or Score that was queued and ended without an answer: cancelled, or for the reason given."""

    request_id: str
    reason: str
    cancelled: bool = False


class ExpertLoad(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the latest tokens each expert computed. layers: those with experts, counted from 0.

    counts: [layers with experts, experts]. tokens: how many tokens these counts are of.
    """

    layers: list[int]
    counts: list[list[int]]
    tokens: int


class Stats(msgspec.Struct, tag="stats", frozen=True, kw_only=True):
    """Requests and blocks now; steps, prompt tokens computed (not cached ones), output tokens, preemptions so far.

    experts: where the request wants it, and the model has experts.
    """

    request_key: int = 0
    running: int
    waiting: int
    free_blocks: int
    cached_blocks: int
    held_blocks: int
    total_blocks: int
    steps: int
    prompt_tokens: int
    output_tokens: int
    preemptions: int
    experts: ExpertLoad | None = None


PooledFrame = Embed | Score
PooledReply = Embedded | Scored
ClientFrame = Submit | Embed | Score | Cancel | LoadAdapter | UnloadAdapter | StatsRequest | Shutdown
EngineFrame = (Loading | Ready | LoadFailed | Rejected | StepOutput | Embedded | Scored | PoolingFailed | AdapterChanged
               | Stats)

_encoder = msgspec.msgpack.Encoder()
_client_decoder = msgspec.msgpack.Decoder(ClientFrame)
_engine_decoder = msgspec.msgpack.Decoder(EngineFrame)


def encode(frame: ClientFrame | EngineFrame) -> bytes:
    """Return the frame with its length before it."""
    body = _encoder.encode(frame)
    return HEADER.pack(len(body)) + body


def decode_client_frame(body: bytes) -> ClientFrame:
    """Decode what a client sent. Raises msgspec.ValidationError or msgspec.DecodeError."""
    frame: ClientFrame = _client_decoder.decode(body)
    return frame


def decode_engine_frame(body: bytes) -> EngineFrame:
    """Decode what an engine sent. Raises msgspec.ValidationError or msgspec.DecodeError."""
    frame: EngineFrame = _engine_decoder.decode(body)
    return frame

"""How Parley's own CPU engine lays a llama-shaped model out: 8-bit or float32 panels, a float32 KV pool, its buffers.

The sizes are those of inference.layers.linear, inference.layers.kv_pool and inference.engine.runner, which need numba;
tests hold the two together.
"""

from collections.abc import Iterator

from inference.planner.device import cpu_flags
from inference.planner.result import Line
from inference.planner.shape import ModelShape
from inference.spec import EngineConfig

PANEL = 32  # outputs that lie together in a packed layer
LANES = 16  # floats of a kernel's vector
FLOAT = 4
MOST_ROWS, ROW_CHUNK = 24, 48
FAMILIES = ("llama", "mistral", "qwen2")
ROPES = ("default", "linear", "llama3")


def padded(size: int) -> int:
    """Return the size rounded up to whole panels."""
    return -(-size // PANEL) * PANEL


def vector_lanes() -> int:
    """Return the floats that the kernels take at a time on this machine: values in the pool fill them."""
    return LANES * (2 if "avx512f" in cpu_flags() else 1)


def is_plain(shape: ModelShape) -> bool:
    """Say whether the fast path serves this shape: Llama's layers with full attention (DecoderSpec.is_plain)."""
    return shape.family in FAMILIES and shape.rope in ROPES and all(
        mixer.kind == "attention" and mixer.window is None for mixer in shape.mixers)


class CpuEngineLayout:
    """The memory of an engine with this configuration; `mode` is its numeric recipe, int8 or float32."""

    def __init__(self, shape: ModelShape, *, mode: str, config: EngineConfig, threads: int) -> None:
        self.shape, self.dtype, self.kv_dtype = shape, mode, "float32"
        self._config, self._threads = config, threads
        self._inner = shape.layers[0].mlp.inner // 2
        self._queries, self._keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self._weight = 1 if mode == "int8" else FLOAT
        self._value = -(-shape.head_dim // vector_lanes()) * vector_lanes()

    def _packed(self) -> dict[str, tuple[int, int, int]]:
        """Return layers, padded outputs and stored inputs of each packed matrix; 8-bit inputs lie in pairs."""
        pair = 2 if self.dtype == "int8" else 1
        return {name: (layers, outputs, -(-inputs // pair) * pair)
                for name, (layers, outputs, inputs) in self._matrices().items()}

    def _matrices(self) -> dict[str, tuple[int, int, int]]:
        shape = self.shape
        count, hidden = len(shape.layers), shape.hidden
        sizes = {
            "qkv": (count, padded(self._queries + 2 * self._keys), hidden),
            "output": (count, padded(hidden), self._queries),
            "gate_up": (count, 2 * padded(self._inner), hidden),
            "down": (count, padded(hidden), self._inner),
            "embedding": (1, padded(shape.vocabulary), hidden),
        }
        return sizes if shape.tied else {**sizes, "head": (1, padded(shape.vocabulary), hidden)}

    def _tables(self, context: int) -> int:
        """Return the bytes of norms and of the rotary tables, cosine and sine of half a head for each position."""
        shape = self.shape
        return FLOAT * ((2 * len(shape.layers) + 1) * shape.hidden + context * shape.head_dim)

    def weights_bytes(self, context: int) -> int:
        packed = sum(layers * outputs * (inputs * self._weight + 2 * FLOAT)
                     for layers, outputs, inputs in self._packed().values())
        return packed + self._tables(context)

    def weights_lines(self, context: int) -> Iterator[Line]:
        values = sum(layers * outputs * inputs for layers, outputs, inputs in self._packed().values())
        rows = sum(layers * outputs for layers, outputs, _ in self._packed().values())
        yield Line("Matrices", f"{values:,} values in panels of {PANEL} outputs × {self._weight} bytes + "
                   f"{rows:,} rows × {2 * FLOAT} bytes of scale and bias",
                   values * self._weight + rows * 2 * FLOAT, "bytes")
        yield Line("Norms and rotary tables",
                   f"({2 * len(self.shape.layers) + 1} norms × {self.shape.hidden:,} + {context:,} positions × "
                   f"{self.shape.head_dim}) × {FLOAT} bytes", self._tables(context), "bytes")
        yield Line("Weights", "matrices + norms and rotary tables", self.weights_bytes(context), "bytes")

    @property
    def kv_bytes_per_token(self) -> int:
        shape = self.shape
        return len(shape.layers) * shape.kv_heads * (shape.head_dim + self._value) * FLOAT

    def kv_lines(self, context: int) -> Iterator[Line]:
        shape, block = self.shape, self._config.block_size
        yield Line("KV cache of a token",
                   f"{len(shape.layers)} layers × {shape.kv_heads} KV heads × ({shape.head_dim} of a key + "
                   f"{self._value} of a value) × {FLOAT} bytes (float32)", self.kv_bytes_per_token, "bytes")
        yield Line("KV blocks of a request", f"⌈{context:,} / {block}⌉ blocks × {block} tokens × "
                   f"{self.kv_bytes_per_token:,} bytes", self.request_bytes(context), "bytes")

    def request_bytes(self, context: int) -> int:
        block = self._config.block_size
        return -(-context // block) * block * self.kv_bytes_per_token

    def activation_bytes(self, context: int, concurrency: int) -> int:
        shape, tokens = self.shape, self._config.max_num_batched_tokens
        sizes = (shape.hidden, shape.hidden, self._queries + 2 * self._keys, self._queries, self._inner)
        widest = max(padded(size) for size in (shape.hidden, self._queries, self._inner))
        narrow = tokens * (2 * (widest + 2 * LANES) + FLOAT)  # 16-bit activations and their scales
        rows = tokens * sum(padded(size) + LANES for size in sizes)
        logits = (concurrency + 1) * padded(shape.vocabulary)  # and as many zeros
        group = shape.heads // shape.kv_heads
        item = max(1, MOST_ROWS // group) * group
        scratch = ROW_CHUNK * 2 * PANEL + item * (shape.head_dim + self._value + -(-context // LANES) * LANES + LANES)
        return FLOAT * (rows + logits + self._threads * scratch) + narrow

    def activation_formula(self, context: int, concurrency: int) -> str:
        return (f"buffers for {self._config.max_num_batched_tokens:,} tokens in a step, {concurrency:,} × "
                f"{padded(self.shape.vocabulary):,} logits and {self._threads} threads, in float32")

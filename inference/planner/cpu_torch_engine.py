"""How Parley's CPU engine lays out decoders that its fast path doesn't serve, and that it runs in torch.

Matrices are packed as the fast path has them, the rest is float32 (inference.layers.weights); a pool keeps the keys and
values of every layer in float32, whatever windows see of them (inference.engine.torch_runner).
"""

from collections.abc import Iterator

from inference.planner.layout import PlainLayout
from inference.planner.precision import FORMATS
from inference.planner.result import Line
from inference.planner.shape import ModelShape
from inference.spec import EngineConfig

FLOAT = 4

# Families that inference.artifacts.families reads: everything else runs by transformers' code, in float32.
NATIVE = frozenset({
    "deepseek_v2", "deepseek_v3", "gemma2", "gemma3_text", "gpt_oss", "granite", "llama", "mistral", "mixtral", "olmo2",
    "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3",
})


class CpuTorchLayout(PlainLayout):
    """A decoder in torch on the CPU; `mode` packs its matrices as int8 or float32."""

    def __init__(self, shape: ModelShape, *, mode: str, config: EngineConfig) -> None:
        super().__init__(shape, weights=FORMATS["float32"], kv_dtype="float32", tp=1, stored=None,
                         batched_tokens=config.max_num_batched_tokens)
        self.dtype = mode if shape.family in NATIVE else "float32"
        self._block = config.block_size
        self._matrix = 1 if self.dtype == "int8" else FLOAT

    def _packed(self) -> int:
        """Return the values in packed matrices: those of layers, the embedding and the output."""
        return self.shape.linear_parameters + self.shape.embedding + self.shape.head

    def _tables(self, context: int) -> int:
        return FLOAT * context * self.shape.head_dim

    def weights_bytes(self, context: int) -> int:
        packed = self._packed()
        return packed * self._matrix + (self.shape.total - packed) * FLOAT + self._tables(context)

    def weights_lines(self, context: int) -> Iterator[Line]:
        packed = self._packed()
        yield Line("Weights", f"{packed:,} values in matrices × {self._matrix} bytes + "
                   f"{self.shape.total - packed:,} others and rotary tables of {context:,} × "
                   f"{self.shape.head_dim} × {FLOAT} bytes", self.weights_bytes(context), "bytes")

    def request_bytes(self, context: int) -> int:
        blocks = -(-context // self._block) * self._block
        return blocks * self.kv_bytes_per_token + self._state_bytes()

    def kv_lines(self, context: int) -> Iterator[Line]:
        for line in super().kv_lines(context):
            if "sliding" not in line.name:  # the pool keeps what a window no longer sees
                yield line

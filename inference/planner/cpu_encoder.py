"""How Parley's CPU engine lays out encoders: BERT's shape in packed matrices, others in torch and float32.

Sizes are those of inference.models.encoder_compiled and inference.kernels.projection; tests hold them together. Of the
memory that activations take, batches decide; their largest size is that of inference.engine.pooling_loading.
"""

from collections.abc import Iterator

from inference.planner.cpu_engine import vector_lanes
from inference.planner.layout import PlainLayout
from inference.planner.precision import FORMATS
from inference.planner.result import Line
from inference.planner.shape import Mixer, ModelShape
from inference.spec import EngineConfig

FLOAT = 4
PANEL, GROUP = 32, 16
FIRST_TOKENS = 2048  # buffers are never smaller
STEP_FLOPS = 60e9
LEAST_TOKENS, MOST_TOKENS = 512, 4096
COMPILED = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra")


def is_compiled(shape: ModelShape) -> bool:
    """Say whether the compiled step serves this shape: BERT's, in sizes that fill panels and vectors."""
    inner = shape.layers[0].mlp.inner
    whole = shape.head_dim % vector_lanes() == shape.hidden % PANEL == inner % PANEL == 0
    return shape.family in COMPILED and whole and shape.embedding == shape.vocabulary * shape.hidden


class CpuEncoderLayout(PlainLayout):
    """An encoder in torch, in float32; the pooler behind it is left out."""

    def __init__(self, shape: ModelShape, *, config: EngineConfig) -> None:
        super().__init__(shape, weights=FORMATS["float32"], kv_dtype="float32", tp=1, stored=None,
                         batched_tokens=config.max_num_batched_tokens)
        self.dtype = "float32"
        work = 2 * (shape.total - shape.pooler - shape.embedding - shape.positions)
        tokens = max(LEAST_TOKENS, config.max_num_batched_tokens, int(STEP_FLOPS / work))
        self._most_tokens = min(MOST_TOKENS, tokens)

    def weights_bytes(self, context: int) -> int:
        return (self.shape.total - self.shape.pooler) * FLOAT

    def weights_lines(self, context: int) -> Iterator[Line]:
        yield Line("Weights", f"({self.shape.total:,} − {self.shape.pooler:,} of the pooler) parameters × {FLOAT} "
                   "bytes", self.weights_bytes(context), "bytes")

    def _step_tokens(self, context: int, concurrency: int) -> int:
        return max(context, min(context * concurrency, self._most_tokens))

    def _kv_mixers(self) -> list[Mixer]:
        return []


class CompiledEncoderLayout(CpuEncoderLayout):
    """An encoder of BERT's shape; `mode` packs its matrices in float32, or in 8 bits with a scale for 16 inputs."""

    def __init__(self, shape: ModelShape, *, mode: str, config: EngineConfig) -> None:
        super().__init__(shape, config=config)
        self.dtype = mode
        hidden, inner = shape.hidden, shape.layers[0].mlp.inner
        matrices = ((3 * hidden, hidden), (hidden, hidden), (inner, hidden), (hidden, inner))
        self._values = len(shape.layers) * sum(outputs * inputs for outputs, inputs in matrices)
        self._outputs = len(shape.layers) * sum(outputs for outputs, _ in matrices)
        self._inputs = len(shape.layers) * sum(inputs for _, inputs in matrices)

    def _plain(self) -> int:
        """Return the numbers that stay in float32: tables of words, positions and types, and norms."""
        shape = self.shape
        types = 0 if shape.family != "distilbert" else shape.hidden  # a row of zeros where a family has none
        norms = 2 * shape.hidden + sum(layer.norms for layer in shape.layers)
        return shape.embedding + shape.positions + types + norms

    def _matrices(self) -> int:
        if self.dtype == "float32":
            return self._values * FLOAT + self._outputs * 2 * FLOAT
        return self._values + (self._values // GROUP + self._inputs + self._outputs) * FLOAT

    def weights_bytes(self, context: int) -> int:
        return self._plain() * FLOAT + self._matrices()

    def weights_lines(self, context: int) -> Iterator[Line]:
        if self.dtype == "float32":
            formula = f"{self._values:,} values × {FLOAT} bytes + {self._outputs:,} rows × {2 * FLOAT} bytes"
        else:
            formula = (f"{self._values:,} values × 1 byte + ({self._values // GROUP:,} scales + {self._inputs:,} "
                       f"factors + {self._outputs:,} biases) × {FLOAT} bytes")
        yield Line("Matrices", formula, self._matrices(), "bytes")
        yield Line("Tables and norms", f"{self._plain():,} numbers × {FLOAT} bytes", self._plain() * FLOAT, "bytes")
        yield Line("Weights", "matrices + tables and norms", self.weights_bytes(context), "bytes")

    def _step_tokens(self, context: int, concurrency: int) -> int:
        return max(FIRST_TOKENS, super()._step_tokens(context, concurrency))

    def _row_elements(self) -> int:
        """The stream, queries with keys and values, what attention gives, and the copy that is handed on."""
        return 6 * self.shape.hidden

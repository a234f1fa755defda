"""Number formats: how many bits a weight or a cached key takes, scales included."""

from dataclasses import dataclass

from inference.spec import SpecError


@dataclass(frozen=True)
class Format:
    """A way to store weights. bits: of one value; extra_bits: of scales and zero points, a value; parts: what of the
    model is stored so, the rest being in 16 bits: everything, the layers' matrices, or experts only."""

    name: str
    bits: float
    extra_bits: float = 0.0
    parts: str = "all"  # "all", "linear" or "experts"

    @property
    def bytes(self) -> float:
        return (self.bits + self.extra_bits) / 8


FORMATS: dict[str, Format] = {
    "float32": Format("float32", 32),
    "float16": Format("float16", 16),
    "bfloat16": Format("bfloat16", 16),
    # A float32 scale for each block of 128 × 128 (DeepSeek-V3, arXiv 2412.19437, section 3.3).
    "fp8": Format("fp8", 8, 32 / 128**2, "linear"),
    # A 16-bit scale for each output row; rows are thousands of values long.
    "int8": Format("int8", 8, 0, "linear"),
    # Groups of 128 with a 16-bit scale and a 4-bit zero point (AWQ, GPTQ).
    "int4": Format("int4", 4, (16 + 4) / 128, "linear"),
    # Blocks of 32 with an 8-bit exponent (OCP Microscaling formats v1.0); gpt-oss stores its experts so.
    "mxfp4": Format("mxfp4", 4, 8 / 32, "experts"),
}
NAMES = {"fp32": "float32", "f32": "float32", "fp16": "float16", "f16": "float16", "half": "float16",
         "bf16": "bfloat16", "float8": "fp8", "float8_e4m3fn": "fp8", "fp8_e4m3": "fp8", "w8": "int8", "w4": "int4",
         "awq": "int4", "gptq": "int4"}
KV_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8": 1, "int8": 1}


def weight_format(name: str) -> Format:
    """Return the format of this name. Raises SpecError for an unknown one."""
    known = FORMATS.get(NAMES.get(name.lower(), name.lower()))
    if known is None:
        raise SpecError("dtype", f"{name[:40]!r} is not known (known: {', '.join(FORMATS)})")
    return known


def kv_format(name: str) -> str:
    """Return the canonical name of a KV cache's type. Raises SpecError for an unknown one."""
    known = NAMES.get(name.lower(), name.lower())
    if known not in KV_BYTES:
        raise SpecError("kv_dtype", f"{name[:40]!r} is not known (known: {', '.join(KV_BYTES)})")
    return known

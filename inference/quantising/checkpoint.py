"""Writes a quantised model as a checkpoint that transformers and vLLM read: compressed-tensors, tokenizer included.

Format: compressed-tensors' int-quantized (INT8), float-quantized (FP8) and pack-quantized (INT4).
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from inference.artifacts.gguf import GgufFile
from inference.artifacts.names import HEAD
from inference.artifacts.source import ModelSource
from inference.quantising.grids import Fp8Grid, IntGrid
from inference.quantising.methods import Method
from inference.quantising.solver import Quantised
from inference.text.gguf_tokenizer import chat_template_from_gguf, tokenizer_config_from_gguf, tokenizer_from_gguf

SHARD_BYTES = 4 * 2**30
TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
              "chat_template.json", "tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json", "LICENSE",
              "LICENSE.txt")  # fmt: skip


def write_checkpoint(out: Path, *, path: Path, source: ModelSource, model: Any, method: Method,
                     layers: dict[str, Quantised]) -> None:
    """Write the checkpoint as the folder out, which must not exist; it appears only when it is complete.

    path: what the model was read from, for the tokenizer's files. layers: the rounded weights by module name.
    """
    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        _write_weights(part, _tensors(model, source, method, layers))
        config = {key: value for key, value in source.config.items() if key not in ("quantization_config", "dtype")}
        _write_json(part / "config.json", config | {
            "torch_dtype": str(_plain_dtype(source)).removeprefix("torch."),
            "quantization_config": quantization_config(model, method, layers),
        })
        if source.generation_config:
            _write_json(part / "generation_config.json", source.generation_config)
        _write_text_files(part, path)
        part.rename(out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def quantization_config(model: Any, method: Method, layers: dict[str, Quantised]) -> dict[str, Any]:
    """Return the config's part that says how the layers are stored."""
    grid = method.grid
    floating = isinstance(grid, Fp8Grid)
    bits = grid.bits if isinstance(grid, IntGrid) else 8
    activations = {"num_bits": 8, "type": "float" if floating else "int", "strategy": "token", "dynamic": True,
                   "symmetric": True}  # fmt: skip
    weights = {"num_bits": bits, "type": "float" if floating else "int", "dynamic": False,
               "symmetric": not isinstance(grid, IntGrid) or grid.symmetric,
               "strategy": "channel" if grid.group_size is None else "group", "group_size": grid.group_size}
    form = "float-quantized" if floating else "int-quantized" if bits == 8 else "pack-quantized"
    left = [name for name, module in model.named_modules() if isinstance(module, nn.Linear) and name not in layers]
    return {
        "quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": left,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                      "input_activations": activations if method.round_inputs else None}},
    }  # fmt: skip


def pack_int4(numbers: Tensor) -> Tensor:
    """Return numbers from -8 to 7 [rows, columns] eight in a word, the first lowest. int32 [rows, columns / 8]"""
    places = (numbers.to(torch.int64) + 8).reshape(len(numbers), -1, 8)
    words = (places << (4 * torch.arange(8))).sum(2)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def _tensors(model: Any, source: ModelSource, method: Method, layers: dict[str, Quantised]) -> dict[str, Tensor]:
    dtype, tensors = _plain_dtype(source), {}
    for name, value in model.state_dict().items():
        module = name.removesuffix(".weight")
        if name == HEAD and model.config.tie_word_embeddings:
            continue
        if module not in layers:
            tensors[name] = value.to(dtype).contiguous()
            continue
        tensors |= {f"{module}.{part}": stored.contiguous() for part, stored in _stored(layers[module], method).items()}
    return tensors


def _stored(layer: Quantised, method: Method) -> dict[str, Tensor]:
    grid, scale = method.grid, layer.scales.scale
    if isinstance(grid, Fp8Grid):
        return {"weight": layer.codes.to(torch.float8_e4m3fn), "weight_scale": scale}
    if not isinstance(grid, IntGrid) or grid.bits == 8:
        return {"weight": layer.codes.to(torch.int8), "weight_scale": scale}
    parts = {"weight_packed": pack_int4(layer.codes), "weight_scale": scale,
             "weight_shape": torch.tensor(layer.codes.shape)}
    if layer.scales.zero is not None:
        zero = layer.scales.zero  # [out, groups], packed along outputs
        padded = torch.nn.functional.pad(zero, (0, 0, 0, -len(zero) % 8), value=-8)
        parts["weight_zero_point"] = pack_int4(padded.T).T
    return parts


def _plain_dtype(source: ModelSource) -> torch.dtype:
    """Return the type of what isn't quantised: the source's own, or bfloat16."""
    kinds = {info.dtype for info in source.tensors.values()}
    own = {"F32": torch.float32, "F16": torch.float16}
    return own.get(kinds.pop(), torch.bfloat16) if len(kinds) == 1 else torch.bfloat16


def _write_weights(folder: Path, tensors: dict[str, Tensor]) -> None:
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if size and size + tensor.nbytes > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    names = ["model.safetensors"] if len(shards) == 1 else [
        f"model-{index:05}-of-{len(shards):05}.safetensors" for index in range(1, len(shards) + 1)]
    for file, shard in zip(names, shards, strict=True):
        save_file(shard, folder / file, metadata={"format": "pt"})
    if len(shards) > 1:
        places = {name: file for file, shard in zip(names, shards, strict=True) for name in shard}
        total = sum(tensor.nbytes for tensor in tensors.values())
        _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": places})


def _write_text_files(folder: Path, path: Path) -> None:
    """Copy what belongs to the tokenizer, or make it from a GGUF file's metadata."""
    beside = path if path.is_dir() else path.parent
    for name in TEXT_FILES if path.is_dir() else ():
        if (beside / name).is_file():
            shutil.copyfile(beside / name, folder / name)
    if (folder / "tokenizer.json").is_file():
        return
    file = GgufFile(path if path.is_file() else next(beside.glob("*.gguf")))
    tokenizer_from_gguf(file).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", tokenizer_config_from_gguf(file))
    if (template := chat_template_from_gguf(file)) is not None:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

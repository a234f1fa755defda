"""The planner's command line: `python -m inference.planner PATH_OR_CONFIG` prints the plan line by line, or as JSON."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from inference.artifacts.errors import ArtifactError
from inference.planner import (
    AdapterSlots,
    Device,
    ModelOnDisk,
    Plan,
    device_named,
    plan,
    plan_cpu_engine,
    read_model,
)
from inference.planner.advice import amount
from inference.planner.device import DEVICES, THIS_MACHINE
from inference.spec import MODES, EngineConfig, SpecError


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the plan; returns 0, also when the model doesn't fit, and 2 when there is no plan."""
    options = _parser().parse_args(arguments)
    try:
        made = _plan(options, read_model(Path(options.path)))
    except (ArtifactError, SpecError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(made.to_dict(), indent=2, ensure_ascii=False) if options.json else _table(made))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m inference.planner", description=__doc__)
    parser.add_argument("path", metavar="PATH_OR_CONFIG", help="a config.json, a model's folder or a .gguf file")
    parser.add_argument("--context", type=int, help="tokens of each request, prompt and reply (the model's own)")
    parser.add_argument("--concurrency", type=int, default=1, help="requests at once (1)")
    parser.add_argument("--dtype", help="of the weights (as stored, or as the config says)")
    parser.add_argument("--kv-dtype", help="of keys and values (the config's 16-bit type)")
    names = [device.name for device in DEVICES.values()]
    parser.add_argument("--device", help=f"one of {', '.join(names)}; or cpu: this machine, with Parley's own "
                                         "engine (--dtype int8 or float32)")
    parser.add_argument("--memory", type=_number, metavar="BYTES", help="of a device that isn't known here")
    parser.add_argument("--bandwidth", type=_number, metavar="B", help="its memory's bytes/s")
    parser.add_argument("--flops", type=_number, metavar="F", help="its FLOP/s")
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel ranks, each on such a device (1)")
    parser.add_argument("--adapters", type=int, default=0, metavar="N", help="room for so many LoRA adapters (0)")
    parser.add_argument("--adapter-rank", type=int, default=16, metavar="R", help="their rank (16)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _number(text: str) -> float:
    """Read a number such as 80e9. Raises ValueError for anything else, and for what isn't positive and finite."""
    value = float(text)
    if not 0 < value < 1e30:
        raise ValueError(text)
    return value


def _device(options: argparse.Namespace) -> Device:
    device = device_named(options.device or THIS_MACHINE) if options.memory is None else None
    if device is None:
        device = Device(name="given", kind="cuda", memory_bytes=int(options.memory))
        if options.device:
            device = replace(device_named(options.device), memory_bytes=int(options.memory))
    if options.bandwidth is not None:
        device = replace(device, bandwidth=options.bandwidth)
    if options.flops is not None:
        device = replace(device, flops={"32": options.flops, "16": options.flops, "8": options.flops})
    return device


def _plan(options: argparse.Namespace, model: ModelOnDisk) -> Plan:
    device = _device(options)
    on_cpu = bool(options.device) and device.kind == "cpu" and options.dtype in (None, *MODES) and options.tp == 1
    if on_cpu:
        engine = EngineConfig(model=options.path, mode=options.dtype or "int8",
                              max_num_seqs=max(1, options.concurrency),
                              max_num_batched_tokens=max(256, options.concurrency))
        return plan_cpu_engine(model.config, engine=engine, device=device, threads=os.cpu_count() or 1,
                               context=options.context, concurrency=options.concurrency, stored=model.stored)
    adapters = AdapterSlots(slots=options.adapters, rank=options.adapter_rank) if options.adapters else None
    return plan(model.config, device=device, context=options.context, concurrency=options.concurrency,
                dtype=options.dtype, kv_dtype=options.kv_dtype, tp=options.tp, adapters=adapters, stored=model.stored)


def _table(made: Plan) -> str:
    """Return the plan for people: a line each, with the arithmetic under its name."""
    rows = []
    for line in made.lines:
        value = amount(line.value) if line.unit == "bytes" else f"{line.value:,.6g} {line.unit}"
        rows.append(f"{line.name:<36}{value:>22}   = {line.formula}")
    rows.append("It fits." if made.fits else "It does not fit.")
    rows += made.reasons + made.notes if made.reasons or made.notes else ()
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())

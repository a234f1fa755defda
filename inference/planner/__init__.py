"""Says before loading whether a model fits a device, for how many requests, and how fast; standard library only.

`plan(config, device=…, …)` for any engine, `plan_cpu_engine` for Parley's own on the CPU, `read_model` for what lies on
disk, and `python -m inference.planner PATH`.
"""

from inference.planner.architecture import describe, shape_from_config
from inference.planner.device import DEVICES, Device, device_by_product, device_named, this_machine
from inference.planner.layout import StoredWeights
from inference.planner.planning import AdapterSlots, KvRoom, plan, plan_cpu_engine
from inference.planner.reading import ModelOnDisk, read_model
from inference.planner.result import Architecture, AttentionKind, Line, Plan

__all__ = [
    "DEVICES", "AdapterSlots", "Architecture", "AttentionKind", "Device", "KvRoom", "Line", "ModelOnDisk", "Plan",
    "StoredWeights", "describe", "device_by_product",
    "device_named", "plan", "plan_cpu_engine", "read_model",
    "shape_from_config", "this_machine",
]

# SPDX-License-Identifier: Apache-2.0
"""Floating-point operations of a model, and how many of them its devices could do.

A forward is counted here; what a step takes by it, metrics/step_meter.h says.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

_PEAKS = (
    ("GB200", 2.5e15),
    ("B200", 2.25e15),
    ("GH200", 9.89e14),
    ("H200", 9.89e14),
    ("H100 PCIe", 7.56e14),
    ("H100 NVL", 8.35e14),
    ("H100", 9.89e14),
    ("L40S", 3.62e14),
    ("A100", 3.12e14),
    ("L4", 1.21e14),
    ("A10G", 7.0e13),
    ("V100", 1.25e14),
    ("T4", 6.5e13),
)
"""By a part of the device's name, the first that fits: dense, in 16 bits, from the data sheets."""


def device_peak_flops(name: str) -> float | None:
    """A second, of a device as torch names it, in 16 bits; None for one that is not known.

    >>> device_peak_flops("NVIDIA H100 80GB HBM3"), device_peak_flops("CPU")
    (989000000000000.0, None)
    """
    return next((peak for part, peak in _PEAKS if part in name), None)


def _attention_flops(query: Any, key: Any, value: Any) -> int:
    batch, heads, length, width = query
    return int(2 * batch * heads * length * key[-2] * (width + value[-1]))


def operation_flops(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """FLOPs of one dispatched operation, by torch's formulas; 0 where it has none."""
    packet = func._overloadpacket
    if packet is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
        return _attention_flops(*(tensor.shape for tensor in args[:3]))
    counter = flop_registry.get(packet)
    return int(counter(*args, **kwargs, out_val=out)) if counter is not None else 0


class ForwardFlops(TorchDispatchMode):
    """Counts what runs within it, on this thread, outside of backwards."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if torch._C._current_graph_task_id() == -1:
            self.flops += operation_flops(func, args, kwargs or {}, out)
        return out

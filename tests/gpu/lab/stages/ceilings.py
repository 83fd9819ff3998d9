# SPDX-License-Identifier: Apache-2.0
"""Ceilings of this GPU: the measure of everything after it."""

from __future__ import annotations

import torch
from measuring import DEVICE, GPU, by_turns, large, report


def copy_rate() -> float:
    """Bytes read and written a second by a copy within the device's memory."""
    count = large(1 << 30)
    source = torch.empty(count, dtype=torch.uint8, device=DEVICE).random_()
    target = torch.empty_like(source)
    return 2 * count / by_turns({"copy": lambda: target.copy_(source)}, 20)["copy"]


def product_rate() -> float:
    """Floating-point operations a second of a large product of bf16 matrices."""
    n = 8192 if GPU else 256
    left, right = (torch.randn(n, n, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    return 2 * n**3 / by_turns({"product": lambda: left @ right}, 20)["product"]


def pinned_rates() -> dict[str, float]:
    """Bytes a second between the device and pinned memory, each way."""
    count = 1 << 28 if GPU else 1 << 20
    there = torch.empty(count, dtype=torch.uint8, device=DEVICE)
    here = torch.empty(count, dtype=torch.uint8, pin_memory=GPU)
    seconds = by_turns(
        {
            "to_gpu": lambda: there.copy_(here, non_blocking=True),
            "from_gpu": lambda: here.copy_(there, non_blocking=True),
        },
        10,
    )
    return {name: count / took for name, took in seconds.items()}


def launch_seconds() -> float:
    """Seconds that the host needs for each of many small kernels."""
    small = torch.zeros(1, device=DEVICE)

    def many() -> None:
        for _ in range(1000):
            small.add_(1)

    return by_turns({"launches": many}, 5)["launches"] / 1000


def main() -> None:
    report(
        {
            "copy_bytes_a_second": copy_rate(),
            "bf16_flops": product_rate(),
            "pinned_bytes_a_second": pinned_rates(),
            "launch_seconds": launch_seconds(),
        }
    )


if __name__ == "__main__":
    main()

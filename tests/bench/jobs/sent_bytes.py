# SPDX-License-Identifier: Apache-2.0
"""Bytes that PyTorch's own collectives send."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class SentBytes(TorchDispatchMode):
    """Bytes a rank sends for functional collectives, by ring arithmetic."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.ranks, self.total = ranks, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        if "_c10d_functional" in name and "wait_tensor" not in name:
            factor = {"all_reduce": 2 / self.ranks, "reduce_scatter": 1 / self.ranks,
                      "all_gather": 1, "all_to_all": 1 / self.ranks}  # fmt: skip
            share = next((factor[kind] for kind in factor if kind in name), 0)  # wrappers: none
            self.total += int(args[0].nbytes * share * (self.ranks - 1)) if share else 0
        return func(*args, **(kwargs or {}))

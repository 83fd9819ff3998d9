# SPDX-License-Identifier: Apache-2.0
"""A torch that says it has CUDA devices, and does on the CPU what is asked of them.

For tests that want a GPU a rank only to put a model there: what they ask of the backend is the
same. What really needs a GPU fails over every backend alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from smdistributed.modelparallel.torch._ranks import cuda_on_cpu
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@contextlib.contextmanager
def seen() -> Iterator[None]:
    """Around the import of the suite, which looks for devices then."""
    really = torch.cuda.is_available
    torch.cuda.is_available = lambda: True
    from torch.testing._internal import common_distributed  # noqa: PLC0415 - it looks, too

    try:
        # The only place that looks again when a test begins, where the answer has to be "none".
        common_distributed.skip_if_lt_x_gpu = lambda *_, **__: lambda test: test
        yield
    finally:
        torch.cuda.is_available = really


def install(devices: int) -> None:
    """Once the suite is imported."""
    cuda_on_cpu.install()
    torch.cuda.device_count = lambda: devices
    torch.cuda.device = lambda _: contextlib.nullcontext()  # type: ignore[assignment, misc]
    plain = DistributedDataParallel.__init__

    def without_devices(
        self: DistributedDataParallel,
        module: nn.Module,
        device_ids: object = None,
        output_device: object = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        plain(self, module, None, None, *args, **kwargs)

    DistributedDataParallel.__init__ = without_devices  # type: ignore[method-assign]

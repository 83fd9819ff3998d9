# SPDX-License-Identifier: Apache-2.0
"""Mixed precision as scripts import it."""

from __future__ import annotations

from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler as _TorchScaler

from smdistributed.modelparallel.torch.not_yet import refuse


class GradScaler(_TorchScaler):
    """``torch.amp.GradScaler``. Disabled, and without a GPU, it does nothing, like torch's.

    Enabled it would have to find overflows on all partitions, which is not there yet: ``scale``
    raises.

    >>> GradScaler(enabled=False).scale(torch.tensor(2.0))
    tensor(2.)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("enabled", torch.cuda.is_available())
        super().__init__("cuda", *args, **kwargs)

    def scale(self, outputs: Any) -> Any:
        if self.is_enabled():
            refuse("smp.amp.GradScaler", "loss scaling over partitions")
        return super().scale(outputs)

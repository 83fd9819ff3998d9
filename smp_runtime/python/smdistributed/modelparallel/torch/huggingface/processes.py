# SPDX-License-Identifier: Apache-2.0
"""Makes Transformers and Accelerate treat each process as one that trains alone."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from accelerate.state import AcceleratorState, PartialState

_GATE = "is_sagemaker_mp_enabled"
# Set when modules are imported with the gate open: save_pretrained then translates names once more.
_FLAG = "IS_SAGEMAKER_MP_POST_1_10"
# Variables by which Accelerate tells that it is one of several processes.
_LAUNCHERS = (
    "LOCAL_RANK",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MV2_COMM_WORLD_SIZE",
)


class StateAlone(PartialState):  # type: ignore[misc]
    """Accelerate's state of a process that is not one of several. The state is one in a process.

    Else Accelerate would make process groups of its own, and set variables of ranks.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        hidden = {name: os.environ.pop(name) for name in _LAUNCHERS if name in os.environ}
        try:
            super().__init__(*args, **kwargs)
        finally:
            os.environ.update(hidden)


def begin_alone(device: torch.device) -> None:
    """A new state, of a process on ``device``."""
    AcceleratorState._reset_state(reset_partial_state=True)
    StateAlone(cpu=device.type == "cpu").device = device


def switch_off_own_calls() -> None:
    """Transformers' Trainer calls the library by itself where the variables of a job say so: with
    GPUs taken for granted, without evaluation of batches that do not divide, and, since version 5,
    without an optimizer. From now on it does not."""
    for name, module in list(sys.modules.items()):
        if name == "transformers" or name.startswith("transformers."):
            namespace = vars(module)
            if _GATE in namespace:
                namespace[_GATE] = _closed_gate
            if _FLAG in namespace:
                namespace[_FLAG] = False
    sys.modules["transformers.training_args"].PartialState = StateAlone  # type: ignore[attr-defined]


def _closed_gate() -> bool:
    return False

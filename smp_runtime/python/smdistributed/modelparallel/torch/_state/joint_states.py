# SPDX-License-Identifier: Apache-2.0
"""State dicts of several optimizers, as of one whose groups are those of all."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError


def joint_state_dict(optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Any]:
    """State dict of all ``optimizers``; numbers of parameters go on from one to the next.

    Raises SMPCheckpointError for one of several that keeps what this has no place for.
    """
    if len(optimizers) == 1:
        return optimizers[0].state_dict()
    joint: dict[str, Any] = {"state": {}, "param_groups": []}
    first = 0
    for optimizer in optimizers:
        own = optimizer.state_dict()
        more = sorted(own.keys() - joint.keys())
        if more:
            raise SMPCheckpointError(
                f"{type(optimizer).__name__} keeps {', '.join(more)} in its state dict beside "
                "state and param_groups, for which a checkpoint of several optimizers has no "
                "place; save optimizer.state_dict() of each by yourself"
            )
        joint["state"] |= {first + number: value for number, value in own["state"].items()}
        joint["param_groups"] += [_renumbered(group, first) for group in own["param_groups"]]
        first += _size(own["param_groups"])
    return joint


def load_joint(optimizers: Sequence[torch.optim.Optimizer], joint: Mapping[str, Any]) -> None:
    """Has each of ``optimizers`` load its part of ``joint``."""
    if len(optimizers) == 1:
        optimizers[0].load_state_dict(dict(joint))
        return
    first, groups = 0, iter(joint["param_groups"])
    for optimizer in optimizers:
        own = list(itertools.islice(groups, len(optimizer.param_groups)))
        after = first + _size(own)
        optimizer.load_state_dict({
            "state": {number - first: value for number, value in joint["state"].items()
                      if first <= number < after},
            "param_groups": [_renumbered(group, -first) for group in own],
        })  # fmt: skip
        first = after


def _size(groups: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(group["params"]) for group in groups)


def _renumbered(group: Mapping[str, Any], by: int) -> dict[str, Any]:
    return {**group, "params": [number + by for number in group["params"]]}

# SPDX-License-Identifier: Apache-2.0
"""State dicts of several optimizers, as of one whose groups are those of all, and of all
partitions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from smdistributed import _runtime
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


def state_dict_of(saved: _runtime.SavedState, names: Sequence[str]) -> dict[str, Any]:
    """The state dict of an optimizer over the whole parameters ``names``, by their numbers."""
    kept = {number: saved.whole_state(name) for number, name in enumerate(names)}
    numbers = {name: number for number, name in enumerate(names)}
    return {
        "state": {number: values for number, values in kept.items() if values} | saved.common,
        "param_groups": [{**settings, "params": [numbers[name] for name in group]}
                         for settings, group in saved.groups],
    }  # fmt: skip


def merged_states(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """One optimizer state from those of all partitions."""
    parts = list(parts)
    merged = {**parts[0], "state": {}}
    for part in parts:
        merged["state"].update(part["state"])
    return merged


def move_state(optimizer: torch.optim.Optimizer) -> None:
    """Moves what is kept to the devices of the parameters."""
    for group in optimizer.param_groups:
        # As torch where it loads state: the count of steps is the host's, or the kernel's.
        on_device = bool(group.get("capturable") or group.get("fused"))
        for parameter in group["params"]:
            values = optimizer.state.get(parameter, {})
            for name, value in values.items():
                if isinstance(value, torch.Tensor) and (name != "step" or on_device):
                    values[name] = value.to(parameter.device)


def _size(groups: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(group["params"]) for group in groups)


def _renumbered(group: Mapping[str, Any], by: int) -> dict[str, Any]:
    return {**group, "params": [number + by for number in group["params"]]}

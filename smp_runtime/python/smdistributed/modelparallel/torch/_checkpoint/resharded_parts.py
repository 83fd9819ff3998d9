# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in parts that were saved with layers sliced otherwise than this job's are.

``slices.json`` of a checkpoint says along which axis entries are sliced, and which modules had been
replaced by distributed ones. The slices of all its tensor ranks are put together, renamed where
this job has other modules in their place, and sliced anew. What decides is pure; reading is the
caller's.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from smdistributed.modelparallel.torch._state.state_fit import KIND_KEY, NAMES_KEY, UNNAMED
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

Axes = Mapping[str, int]
Rename = Callable[[Mapping[str, Any]], Mapping[str, Any]]


_FORMAT = 2  # 1 said neither its number nor what was replaced


@dataclasses.dataclass(frozen=True)
class Slices:
    """Layout of a job's layers over its tensor ranks."""

    axes: Axes
    """The axis along which entries of the model are sliced; without whole ones."""
    replaced: Mapping[str, str] | None
    """The class of the distributed module in the place of each that was replaced, by name; None
    where a file of format 1 does not say it."""
    classes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Module and name of the class that each had before; not said by the first files."""
    names: Sequence[str] = ()
    """Names of the model's entries before, in order; nor these."""


def slices_to_json(slices: Slices) -> str:
    """Content of ``slices.json``.

    >>> text = slices_to_json(Slices({"a.weight": 1}, {"a": "DistributedLinear"}))
    >>> slices_from_json(text, "here")
    Slices(axes={'a.weight': 1}, replaced={'a': 'DistributedLinear'}, classes={}, names=())
    """
    content = {"format": _FORMAT, "axes": slices.axes, "replaced": slices.replaced,
               "classes": slices.classes, "names": list(slices.names)}  # fmt: skip
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def slices_from_json(text: str, where: str) -> Slices:
    """Raises SMPCheckpointError for what ``slices_to_json`` of no version made."""
    try:
        content = json.loads(text)
        number, axes, replaced = content.get("format", 1), content["axes"], content.get("replaced")
        classes, names = content.get("classes", {}), content.get("names", [])
        if number not in (1, _FORMAT):
            raise SMPCheckpointError(
                f"{where} has format {number!r}; this version reads formats 1 and {_FORMAT}: go on "
                "with the version of the library that saved it, or a later one"
            )
        if all(isinstance(axis, int) for axis in axes.values()) and (
            number == 1
            or all(isinstance(one, str) for one in (*replaced.values(), *classes.values(), *names))
        ):
            return Slices(axes, replaced, classes, tuple(names))
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise SMPCheckpointError(f"{where} does not say how parameters are sliced")


def joined_entries(parts: Sequence[Mapping[str, Any]], axes: Axes) -> dict[str, Any]:
    """Whole values from those of all tensor ranks, in their order.

    >>> one, two = torch.tensor([[1.0]]), torch.tensor([[2.0]])
    >>> joined_entries([{"w": one, "b": one}, {"w": two, "b": one}], {"w": 1})["w"]
    tensor([[1., 2.]])
    """
    return {
        key: torch.cat([part[key] for part in parts], dim=axes[key]) if key in axes else value
        for key, value in parts[0].items()
    }


def joined_optimizer(
    parts: Sequence[Mapping[str, Any]],
    axes: Axes,
    shapes: Mapping[str, Sequence[int]],
    rename: Rename,
    own_names: Sequence[str],
    own_groups: Sequence[Sequence[int]],
    cut: Callable[[str, torch.Tensor], torch.Tensor],
    where: str,
) -> dict[str, Any]:
    """One optimizer state for this job from those of all tensor ranks of a checkpoint.

    What is shaped like a parameter (moments) is joined along the parameter's axis, renamed as
    parameters are, and ``cut`` to this rank's slice; anything else (a count of steps) is kept.

    Args:
        parts: merged over partitions, with the names of the parameters.
        axes, shapes: of the checkpoint's entries, by name; shapes of slices.
        rename: whole values under the names of this job.
        own_names, own_groups: of this job's parameters, by number, and the numbers in each group.
        where: the checkpoint, for errors.
    """
    names = list(parts[0][NAMES_KEY])
    if any(list(part[NAMES_KEY]) != names for part in parts):
        raise SMPCheckpointError(
            f"tensor ranks of the checkpoint {where} have optimizers of other parameters; its "
            "files are of several checkpoints"
        )
    groups = parts[0]["param_groups"]
    if len(groups) != len(own_groups):
        raise SMPCheckpointError(
            f"the optimizer state in {where} has {len(groups)} groups of parameters, here are "
            f"{len(own_groups)}; make the optimizer with as many groups as in the job that saved, "
            "or give load_optimizer=False"
        )
    foreign = [name for name in names if name not in shapes]
    if foreign:
        is_named = foreign[0] and not foreign[0].startswith(UNNAMED)
        named = foreign[0] if is_named else "without a name"
        raise SMPCheckpointError(
            f"the optimizer state in {where} has parameter {named}, which the model beside it does "
            "not have, and this job has another tensor_parallel_degree; go on with the same "
            "degree, or give load_optimizer=False"
        )
    moments, others = _fields(parts, names, axes, shapes)
    numbers = {name: number for number, name in enumerate(own_names) if name}
    state: dict[int, dict[str, Any]] = {}
    for field, values in moments.items():
        for name, value in rename(values).items():
            if name in numbers:
                state.setdefault(numbers[name], {})[field] = cut(name, value).clone()
    for field, values in others.items():
        for number, own in state.items():
            own[field] = _value_for(own_names[number], field, values)
    return {
        "state": state,
        "param_groups": [
            {**group, "params": list(own)} for group, own in zip(groups, own_groups, strict=True)
        ],
        NAMES_KEY: list(own_names),
        KIND_KEY: parts[0].get(KIND_KEY, ""),
    }


def _fields(
    parts: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    axes: Axes,
    shapes: Mapping[str, Sequence[int]],
) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, dict[str, Any]]]:
    """Whole values by field and name: those shaped like parameters, and the others."""
    moments: dict[str, dict[str, torch.Tensor]] = {}
    others: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(names):
        for field, value in parts[0]["state"].get(number, {}).items():
            like = isinstance(value, torch.Tensor) and list(value.shape) == list(shapes[name])
            if not like or value.dim() == 0:
                others.setdefault(field, {})[name] = value
                continue
            pieces = [part["state"][number][field] for part in parts]
            whole = torch.cat(pieces, dim=axes[name]) if name in axes else value
            moments.setdefault(field, {})[name] = whole
    return moments, others


def _value_for(name: str, field: str, values: Mapping[str, Any]) -> Any:
    """The value of a parameter that may have had another name, or been part of another one."""
    found = values[name] if name in values else next(iter(values.values()))
    if name not in values and any(not _equal(value, found) for value in values.values()):
        raise SMPCheckpointError(
            f"the optimizer's {field} differs between parameters, so that of {name}, which is not "
            "in the checkpoint under this name, is not known; load_optimizer=False leaves it out"
        )
    return found.clone() if isinstance(found, torch.Tensor) else found


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)

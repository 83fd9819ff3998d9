# SPDX-License-Identifier: Apache-2.0
"""State dicts of models with distributed modules: slices, whole values, and the plain model's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._annotations.tensor_registry import Registration
from smdistributed.modelparallel.torch._ranks.ranks import tp_size
from smdistributed.modelparallel.torch._slices.parameter_slices import (
    distribution_axis,
    slice_of,
    whole_of,
)
from smdistributed.modelparallel.torch.ports import Translation


@dataclass(frozen=True)
class EntryLayout:
    """How an entry of a state dict lies over the ranks of one copy of the model."""

    shape: tuple[int, ...] | None
    """Of the whole value; None if it is no tensor."""
    dtype: torch.dtype | None
    stage: int
    """The pipeline stage that has it."""
    axis: int | None
    """The axis along which it is sliced over the stage's tensor ranks."""
    master: bool = False
    """True if the value is that which the optimizer steps, in the type of that."""

    def like(self) -> torch.Tensor:
        """A tensor of this shape and type without storage."""
        return torch.empty(self.shape or (), dtype=self.dtype, device="meta")


def axes_of(module: nn.Module) -> dict[str, int]:
    """The axis along which entries of ``module.state_dict()`` are split; without whole ones."""
    entries = module.named_parameters(remove_duplicate=False)
    axes = {key: distribution_axis(value) for key, value in entries}
    return {key: axis for key, axis in axes.items() if axis is not None}


def whole_entries(entries: Mapping[str, Any], axes: Mapping[str, int]) -> OrderedDict[str, Any]:
    """The entries with whole values. Collective over the tensor-parallel group."""
    return OrderedDict((key, whole_of(value, axes.get(key))) for key, value in entries.items())


def whole_shapes(
    shapes: Mapping[str, tuple[int, ...] | None], axes: Mapping[str, int]
) -> dict[str, tuple[int, ...] | None]:
    """Shapes of the whole values whose slices have ``shapes``."""

    def whole(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
        return tuple(size * tp_size() if dim == axis % len(shape) else size
                     for dim, size in enumerate(shape))  # fmt: skip

    return {
        key: shape if shape is None or key not in axes else whole(shape, axes[key])
        for key, shape in shapes.items()
    }


def sliced_entries(entries: Mapping[str, Any], axes: Mapping[str, int]) -> dict[str, Any]:
    """This rank's slices of whole values."""
    return {key: slice_of(value, axes.get(key)) for key, value in entries.items()}


def plainly_named(
    entries: Iterable[str], own: Iterable[str], replaced: Mapping[str, Registration]
) -> dict[str, Registration]:
    """The replaced modules whose entries have the names from before, and not those of this model,
    which are ``own``: each is looked at for itself."""
    keys, names = list(entries), set(own)
    return {
        name: registration
        for name, registration in replaced.items()
        if not {key for key in keys if key.startswith(_prefix(name))} <= names
    }


def from_plain(
    entries: Mapping[str, Any], own: Iterable[str], replaced: Mapping[str, Registration]
) -> dict[str, Any]:
    """A whole state dict under the names of this model.

    ``own`` are the names of this model. What is given may have them already, or those of the model
    as it was before modules were replaced.
    """
    plain = plainly_named(entries, own, replaced)
    return _translated(entries, {name: one.from_plain for name, one in plain.items()})


def to_plain(entries: Mapping[str, Any], replaced: Mapping[str, Registration]) -> dict[str, Any]:
    """A whole state dict of this model under the names that it had before."""
    return _translated(entries, {name: one.to_plain for name, one in replaced.items()})


def _prefix(name: str) -> str:
    return f"{name}." if name else ""


def _translated(
    entries: Mapping[str, Any], translations: Mapping[str, Translation | None]
) -> dict[str, Any]:
    result = dict(entries)
    for name, translate in translations.items():
        if translate is None:
            continue
        prefix = _prefix(name)
        inside = {key[len(prefix) :]: value for key, value in result.items()
                  if key.startswith(prefix)}  # fmt: skip
        for key in inside:
            del result[prefix + key]
        result.update((prefix + key, value) for key, value in translate(inside).items())
    return result

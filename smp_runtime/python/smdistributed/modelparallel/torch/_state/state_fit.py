# SPDX-License-Identifier: Apache-2.0
"""Checks that saved state is of this job's model and optimizer; names what differs first.

What decides is names, shapes and settings. Nothing is read or loaded here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

#: In a checkpoint's file: the parameters' names, by their numbers in the optimizer.
NAMES_KEY = "_smp_parameter_names"
#: And the name of the optimizer's class.
KIND_KEY = "_smp_optimizer"
#: Before the number of a parameter of the optimizer that is none of the model.
UNNAMED = "#"
#: Marks a state dict that holds one partition's entries.
PARTIAL_KEY = "_smp_is_partial"
#: None: of a value that is no tensor, or not known.
Shapes = Mapping[str, tuple[int, ...] | None]

#: Settings of groups that PyTorch's optimizers take over their own defaults for, where state saved
#: by an older version lacks them.
_LATER_SETTINGS = frozenset(
    {"amsgrad", "capturable", "centered", "decoupled_weight_decay", "differentiable", "foreach",
     "fused", "maximize", "momentum", "nesterov"}
)  # fmt: skip
#: What optimizers keep for each element of a parameter.
_LIKE_PARAMETERS = frozenset(
    {"acc_delta", "exp_avg", "exp_avg_sq", "exp_inf", "grad_avg", "max_exp_avg_sq",
     "momentum_buffer", "prev", "square_avg", "step_size", "sum"}
)  # fmt: skip
#: What an optimizer of PyTorch that has no state yet needs to find in what it goes on from.
_KEPT = {
    "ASGD": {"step", "ax"}, "Adadelta": {"step", "square_avg"}, "Adagrad": {"step", "sum"},
    "Adam": {"step", "exp_avg", "exp_avg_sq"}, "AdamW": {"step", "exp_avg", "exp_avg_sq"},
    "Adamax": {"step", "exp_avg", "exp_inf"}, "NAdam": {"step", "exp_avg", "exp_avg_sq"},
    "RAdam": {"step", "exp_avg", "exp_avg_sq"}, "RMSprop": {"step", "square_avg"},
    "Rprop": {"step", "prev"},
}  # fmt: skip
_SAME_MODEL = "build the model as in the job that saved"
_NO_OPTIMIZER = "leave its state out with load_optimizer=False of smp.resume_from_checkpoint"


def shapes_of(entries: Mapping[str, Any]) -> dict[str, tuple[int, ...] | None]:
    """Shapes of the entries of a state dict.

    >>> shapes_of({"weight": torch.ones(2, 3), "extra": "text"})
    {'weight': (2, 3), 'extra': None}
    """
    return {
        key: tuple(value.shape) if isinstance(value, torch.Tensor) else None
        for key, value in entries.items()
    }


def known_shapes(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Those that are known.

    >>> known_shapes({"weight": (2, 3), "extra": None})
    {'weight': (2, 3)}
    """
    return {name: shape for name, shape in shapes.items() if shape is not None}


def merged_entries(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """One whole state dict from those of all partitions.

    >>> merged_entries([{"a": 1, "_smp_is_partial": True}, {"b": 2, "_smp_is_partial": True}])
    {'a': 1, 'b': 2}
    """
    merged: dict[str, Any] = {}
    for part in parts:
        merged.update((key, value) for key, value in part.items() if key != PARTIAL_KEY)
    return merged


def check_model(saved: Shapes, own: Shapes, where: str, strict: bool) -> None:
    """Raises SMPCheckpointError that names the first entry of the model, in its order, which
    differs. Shapes have to be equal; with ``strict`` names, too.

    >>> check_model({"weight": (2, 3)}, {"weight": (4, 3)}, "step_1", False)
    Traceback (most recent call last):
    ...
    smdistributed.modelparallel.torch.exceptions.SMPCheckpointError: step_1 is of another model: \
parameter weight has shape (2, 3) there and (4, 3) here; build the model as in the job that saved
    """
    missing, unknown = sorted(own.keys() - saved.keys()), sorted(saved.keys() - own.keys())
    prefix = _common_prefix(saved, own)
    if prefix is not None:
        raise SMPCheckpointError(f"{where} {prefix}")
    names = [*own, *(name for name in saved if name not in own)]
    for name in names:
        both = name in saved and name in own
        if _alike(saved[name], own[name]) if both else not strict:
            continue
        difference = (
            f"parameter {name} {_seen(saved, name, 'there')} and {_seen(own, name, 'here')}"
            if not both
            else f"parameter {name} has shape {saved[name]} there and {own[name]} here"
        )
        advice = _SAME_MODEL
        if strict and (missing or unknown):
            difference += (
                f"; missing {missing[:8] or 'nothing'}, unknown {unknown[:8] or 'nothing'} "
                f"({len(missing)} and {len(unknown)} in all)"
            )
            advice += ", or take what fits with strict=False"
        raise SMPCheckpointError(f"{where} is of another model: {difference}; {advice}")


def _common_prefix(saved: Shapes, own: Shapes) -> str | None:
    """Text where all names would be the model's, but for a prefix of a wrapper's.

    >>> _common_prefix({"module.a": (1,), "module.b": (2,)}, {"a": (1,), "b": (2,)})
    "fits but for the prefix 'module.' of all its names, of a wrapper that it was saved from; load \
{name.removeprefix('module.'): value for name, value in state.items()}"
    """
    if not own or saved.keys() & own.keys():
        return None
    first = next(iter(own))
    prefixes = {name.removesuffix(first) for name in saved if name.endswith(f".{first}")}
    prefix = next((p for p in prefixes if all(f"{p}{name}" in saved for name in own)), None)
    if prefix is None:
        return None
    return (
        f"fits but for the prefix {prefix!r} of all its names, of a wrapper that it was saved "
        f"from; load {{name.removeprefix({prefix!r}): value for name, value in state.items()}}"
    )


def _alike(one: tuple[int, ...] | None, other: tuple[int, ...] | None) -> bool:
    if one is None or other is None:
        return True
    # As for torch, which once had no tensors without a dimension.
    return one == other or {one, other} == {(), (1,)}


def _seen(shapes: Shapes, name: str, where: str) -> str:
    if name not in shapes:
        return f"is absent {where}"
    shape = shapes[name]
    return f"is {where}" if shape is None else f"has shape {shape} {where}"


@dataclass(frozen=True)
class OptimizerState:
    """An optimizer as it is compared: a saved one, or this job's."""

    kind: str
    """The name of its class; empty where the file does not say it."""
    groups: Sequence[Sequence[str]]
    """The names of the parameters of each group; ``UNNAMED`` and the number for those without."""
    settings: Sequence[Collection[str]]
    """Settings in each group of saved state; of this job's optimizer, those that a group needs."""
    fields: Collection[str]
    """Names of what it keeps for parameters; this job's has none before its first step."""
    shapes: Shapes
    """Shapes of parameters."""
    held: Mapping[str, Shapes] = field(default_factory=dict)
    """By parameter, the shapes of what is kept for it."""


def described_class(optimizer: torch.optim.Optimizer) -> OptimizerState:
    """As far as ``check_kind`` looks at it."""
    fields = {key for held in optimizer.state.values() for key in held}
    return OptimizerState(type(optimizer).__name__, (), [optimizer.defaults.keys()], fields, {})


def state_of(saved: _runtime.SavedState, shapes: Shapes | None = None) -> OptimizerState:
    """The optimizer that was saved; ``shapes`` are those of its parameters, as far as known."""
    held = saved.kept_shapes
    return OptimizerState(
        kind=saved.kind,
        groups=[names for _, names in saved.groups],
        settings=[settings.keys() for settings, _ in saved.groups],
        fields={key for values in held.values() for key in values},
        shapes=saved.shapes if shapes is None else shapes,
        held=held,
    )


def check_is_state(saved: Any, where: str) -> None:
    """Raises SMPCheckpointError for what is no state dict of an optimizer."""
    keys = list(saved) if isinstance(saved, Mapping) else []
    if "state" not in keys or "param_groups" not in keys:
        raise SMPCheckpointError(
            f"{where} is no state of an optimizer: it has {keys[:8] or 'no keys'}; expected state "
            "and param_groups, as optimizer.state_dict() returns them"
        )


def check_optimizer(saved: OptimizerState, own: OptimizerState, where: str) -> None:
    """Raises SMPCheckpointError for the state of another class of optimizer, and, naming the first
    parameter that differs, for one over other parameters or in other groups."""
    check_kind(saved, own, where)
    sizes = [[len(group) for group in one.groups] for one in (saved, own)]
    there, here = _numbered(saved), _numbered(own)
    if there != here:
        pairs = zip(there, here, strict=False)
        place = next((n for n, (one, other) in enumerate(pairs) if one != other),
                     min(len(there), len(here)))  # fmt: skip
        raise SMPCheckpointError(
            f"the optimizer state in {where} is of other parameters: {len(there)} in groups of "
            f"{sizes[0]}, here {len(here)} in groups of {sizes[1]}; number {place} is "
            f"{_described(saved, there, place)} there and {_described(own, here, place)} here; "
            "make the optimizer from the same parameters in the same groups as in the job that "
            f"saved, or {_NO_OPTIMIZER}"
        )
    for name, kept in saved.held.items():
        expected = own.shapes.get(name)
        for key in sorted(kept.keys() & _LIKE_PARAMETERS):
            shape = kept[key]
            scalar = shape is None or torch.Size(shape).numel() == 1
            if scalar or expected is None or shape == expected:
                continue
            raise SMPCheckpointError(
                f"the optimizer state in {where} is of another model: {key} of parameter {name} "
                f"has shape {shape} there, and the parameter {expected} here; {_SAME_MODEL}, or "
                f"{_NO_OPTIMIZER}"
            )


def check_kind(saved: OptimizerState, own: OptimizerState, where: str) -> None:
    """Raises SMPCheckpointError for what the optimizer of this job could not go on from: settings
    that its groups need are not there, or all that is kept has other names."""
    if saved.kind == own.kind:
        return
    needed = {key for settings in own.settings for key in settings} - _LATER_SETTINGS
    lacking = sorted({key for group in saved.settings for key in needed - set(group)})
    kept, wanted = set(saved.fields), set(own.fields or _KEPT.get(own.kind, ()))
    if lacking:
        why = f"its groups have no {_listed(lacking)}"
    elif kept and not (kept & wanted if own.fields else wanted <= kept):
        why = f"it keeps {_listed(sorted(kept))}, and {own.kind} {_listed(sorted(wanted))}"
    else:
        return
    raise SMPCheckpointError(
        f"the optimizer state in {where} is of {saved.kind or 'another optimizer'}, and the "
        f"optimizer here is {own.kind}: {why}; make an optimizer of the class that saved, or "
        f"{_NO_OPTIMIZER}"
    )


def _numbered(of: OptimizerState) -> list[tuple[str, int]]:
    """Each parameter's name and group."""
    return [(name, number) for number, group in enumerate(of.groups) for name in group]


def _described(of: OptimizerState, parameters: Sequence[tuple[str, int]], place: int) -> str:
    if place >= len(parameters):
        return "absent"
    name, group = parameters[place]
    shape = of.shapes.get(name)
    size = "" if shape is None else f" of shape {shape}"
    named = "a parameter without a name" if name.startswith(UNNAMED) else name
    return f"{named}{size} in group {group}"


def _listed(names: Iterable[str]) -> str:
    """
    >>> _listed(["betas", "eps"])
    'betas and eps'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last

# SPDX-License-Identifier: Apache-2.0
"""Decides which annotated modules are replaced by distributed ones, and why others are not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from smdistributed.modelparallel.torch._annotations.tensor_annotations import (
    TensorAnnotation,
    annotation_below,
    annotation_of,
)
from smdistributed.modelparallel.torch._annotations.tensor_registry import (
    Arguments,
    Registration,
    recorded_arguments,
)
from smdistributed.modelparallel.torch.exceptions import SMPTensorParallelError

#: By the names of the classes that torch makes hooks of, those by which scripts ask for them.
_FUNCTIONS_OF_HOOKS = {"WeightNorm": "weight_norm", "SpectralNorm": "spectral_norm"}

Lookup = Callable[[nn.Module], Registration | None]


@dataclass(frozen=True)
class Replacement:
    """A module to be replaced by ``registration.dist_module(*args, **kwargs)``."""

    name: str
    module: nn.Module
    registration: Registration
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Left:
    """A annotated module of a known class that stays as it is."""

    name: str
    reason: str
    misfit: type[nn.Module] | None = None  # the class that sizes which do not divide rule out


@dataclass
class TensorPlan:
    """Names are paths from the root, which is ``(root)``."""

    replacements: list[Replacement] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    unknown_keywords: set[str] = field(default_factory=set)


class _NotDivided(Exception):
    pass


def plan_tensor_parallelism(root: nn.Module, lookup: Lookup, degree: int) -> TensorPlan:
    """Plan of what ``degree`` tensor ranks make of the annotations in ``root``. Changes nothing.

    The outermost module that can be replaced wins; below one that cannot, the search goes on.
    Deterministic: equal models give equal plans on all ranks.

    Raises SMPTensorParallelError, naming the module, for a hook that fails or returns what the
    distributed class cannot be made of.
    """
    plan = TensorPlan()
    given: set[str] = set()
    used: set[str] = set()
    users = _users_of_parameters(root)
    seen: set[nn.Module] = set()

    def visit(name: str, module: nn.Module, inherited: TensorAnnotation | None) -> None:
        if module in seen:
            return
        seen.add(module)
        annotation = annotation_of(module, inherited)
        registration = lookup(module) if annotation is not None and annotation.enabled else None
        if annotation is not None and registration is not None:
            given.update(annotation.config)
            verdict = _judge(
                name or "(root)", module, registration, annotation.config, users, degree
            )
            if isinstance(verdict, Replacement):
                plan.replacements.append(verdict)
                used.update(_constructor(registration).parameters.keys() & annotation.config.keys())
                seen.update(module.modules())
                return
            plan.left.append(verdict)
        below = annotation_below(module, inherited)
        for child_name, child in module.named_children():
            visit(f"{name}.{child_name}" if name else child_name, child, below)

    visit("", root, None)
    plan.unknown_keywords = given - used if plan.replacements else set()
    return plan


def _judge(
    name: str,
    module: nn.Module,
    registration: Registration,
    overrides: Mapping[str, Any],
    users: Mapping[nn.Parameter, set[nn.Module]],
    degree: int,
) -> Replacement | Left:
    partner = _partner_in_weights(module, users)
    if partner is not None:
        return Left(name, f"it shares {partner} with a module outside of it")
    maker = _maker_of_weight(module) if registration.same_calls else None
    if maker is not None:
        return Left(name, f"its weight is made anew in each forward, by {maker}")
    made_with = (
        registration.arguments_of(module)
        if registration.arguments_of is not None
        else recorded_arguments(module)
    )
    if made_with is None:
        return Left(name, f"it was made before {type(module).__name__} was registered")
    hooked = _hooked(name, registration, made_with)
    if hooked is None:
        return Left(name, f"the init_hook of {type(module).__name__} declined")
    args, kwargs = hooked
    known = _constructor(registration).parameters
    kwargs = {**kwargs, **{key: value for key, value in overrides.items() if key in known}}
    try:
        _check_sizes(name, registration, args, kwargs, degree)
    except _NotDivided as misfit:
        return Left(name, str(misfit), misfit=registration.dist_module)
    return Replacement(name, module, registration, args, kwargs)


def _hooked(name: str, registration: Registration, made_with: Arguments) -> Arguments | None:
    hook = registration.init_hook
    if hook is None:
        return made_with
    target = registration.dist_module.__name__
    what = f"module {name}: init_hook {getattr(hook, '__qualname__', hook)} for {target}"
    try:
        result = hook(*made_with[0], **made_with[1])
    except Exception as error:
        raise SMPTensorParallelError(
            f"{what} failed on the arguments that the module was made with: "
            f"{type(error).__name__}: {error}"
        ) from error
    if result is None:
        return None
    pair = isinstance(result, (tuple, list)) and len(result) == 2
    if not (
        pair and isinstance(result[0], (tuple, list)) and isinstance(result[1], Mapping)
        and all(isinstance(key, str) for key in result[1])
    ):  # fmt: skip
        raise SMPTensorParallelError(
            f"{what} returned {_shortened(result)}; expected (args, kwargs), a tuple and a dict, "
            "or None to leave the module as it is"
        )
    return tuple(result[0]), dict(result[1])


def _check_sizes(
    name: str,
    registration: Registration,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    degree: int,
) -> None:
    target = registration.dist_module
    try:
        bound = _constructor(registration).bind(*args, **kwargs)
    except TypeError as error:
        raise SMPTensorParallelError(
            f"module {name}: the arguments {_shortened(args)} and {_shortened(kwargs)} of its "
            f"init_hook do not fit {target.__name__}: {error}"
        ) from error
    bound.apply_defaults()
    for size in getattr(target, "divided_sizes", ()):
        value = bound.arguments.get(size)
        if isinstance(value, int) and value % degree != 0:
            raise _NotDivided(f"its {size} is {value}, which {degree} tensor ranks do not divide")


def _constructor(registration: Registration) -> inspect.Signature:
    return inspect.signature(registration.dist_module)


def _users_of_parameters(root: nn.Module) -> dict[nn.Parameter, set[nn.Module]]:
    users: dict[nn.Parameter, set[nn.Module]] = {}
    for module in root.modules():
        for parameter in module.parameters(recurse=False):
            users.setdefault(parameter, set()).add(module)
    return users


def _partner_in_weights(
    module: nn.Module, users: Mapping[nn.Parameter, set[nn.Module]]
) -> str | None:
    """The name of a parameter that a module outside of ``module`` has, too."""
    inside = set(module.modules())
    return next((n for n, p in module.named_parameters() if not users[p] <= inside), None)


def _maker_of_weight(layer: nn.Module) -> str | None:
    """Names what computes the weight of a plain layer from parameters of other names, as
    ``torch.nn.utils.weight_norm``, ``spectral_norm`` and pruning do."""
    others = sorted(layer._parameters.keys() - {"weight", "bias"})
    if not others:
        return None
    hooks = (hook_name(hook) for hook in layer._forward_pre_hooks.values())
    return f"{', '.join(hooks) or 'the script'} from {', '.join(others)}"


def hook_name(hook: Any) -> str:
    """Name by which errors call a hook of a module or a parameter."""
    hook = getattr(hook, "hook", hook)  # as torch wraps those of state dicts
    name = str(getattr(hook, "__qualname__", None) or type(hook).__name__)
    return _FUNCTIONS_OF_HOOKS.get(name, name)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def transformers_left(plan: TensorPlan) -> list[Left]:
    """Transformers whose sizes do not divide, if there is no other one that is replaced."""

    def has_heads(target: type[nn.Module] | None) -> bool:
        return "num_attention_heads" in getattr(target, "divided_sizes", ())

    if any(has_heads(one.registration.dist_module) for one in plan.replacements):
        return []
    return [left for left in plan.left if has_heads(left.misfit)]


def lines(plan: TensorPlan) -> Iterator[str]:
    """Lines that describe the plan, once per job."""
    became: dict[str, list[str]] = {}
    for one in plan.replacements:
        became.setdefault(one.registration.dist_module.__name__, []).append(one.name)
    for target, names in became.items():
        yield f"tensor parallelism: {target} replaces {_listed(names)}"
    reasons: dict[str, list[str]] = {}
    for left in plan.left:
        reasons.setdefault(left.reason, []).append(left.name)
    for reason, names in reasons.items():
        yield f"tensor parallelism: left as it is: {_listed(names)}, because {reason}"
    for key in sorted(plan.unknown_keywords):
        yield (
            f"tensor parallelism: keyword {key} is ignored, for none of the distributed modules "
            "takes it"
        )


def _listed(names: list[str]) -> str:
    """The first of ``names``, and how many more there are.

    >>> _listed(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")

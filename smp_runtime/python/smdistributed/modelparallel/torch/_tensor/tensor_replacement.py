# SPDX-License-Identifier: Apache-2.0
"""Puts distributed modules in the place of those that a plan names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._partition.delayed_parameters import delayed, has_delayed
from smdistributed.modelparallel.torch._partition.model_creation import default_type
from smdistributed.modelparallel.torch._session import ranks
from smdistributed.modelparallel.torch._session.log import info, warning
from smdistributed.modelparallel.torch._sharding.precision import begins_in_fp16
from smdistributed.modelparallel.torch._tensor.predefined_modules import predefined_registration
from smdistributed.modelparallel.torch._tensor.tensor_plan import (
    Replacement,
    TensorPlan,
    lines,
    plan_tensor_parallelism,
    transformers_left,
)
from smdistributed.modelparallel.torch._tensor.tensor_registry import Registration, registration_of
from smdistributed.modelparallel.torch.exceptions import SMPTensorParallelError
from smdistributed.modelparallel.torch.nn.distributed_module import DistributedModule
from smdistributed.modelparallel.torch.nn.parameter_slices import distribution_axis, slice_of
from smdistributed.modelparallel.torch.state_mod import state


@dataclass(frozen=True)
class Replaced:
    """A model with distributed modules in it. Names are paths from the root, which is empty."""

    root: nn.Module
    made: dict[str, Registration]
    """What became of each module that was replaced."""
    known: dict[str, Registration]
    """What each module of a known class could have become, annotated or not."""


def replace_annotated(root: nn.Module) -> Replaced:
    """The model with distributed modules where annotations ask for them.

    The root itself may be replaced. On several tensor ranks new parameters have values of their
    own, or with ``_match_weights`` those of the modules that they replace. On one rank, where
    nothing is split, they have the latter wherever the library knows which is which; parameters
    whose values are delayed then stay so. Not collective, but all ranks do the same.

    Raises SMPTensorParallelError, naming modules and numbers, if there are annotated transformers
    and not one of them can be split for its sizes: next to nothing would be split then.
    """
    if state.cfg.fp16_params and not begins_in_fp16():
        warning(
            "fp16_params is ignored: bf16 makes parameters bfloat16, with masters that begin with "
            "all 32 bits; leave fp16_params out"
        )
    degree = ranks.tp_size()
    known = _known(root)
    plan = plan_tensor_parallelism(root, _lookup, degree)
    for line in lines(plan):
        info(line)
    _refuse_heads(plan, degree)
    made = {one.module: _made(one, degree) for one in plan.replacements}
    for parent in list(root.modules()):
        for name, child in parent._modules.items():
            if child in made:
                parent._modules[name] = made[child]
    root = made.get(root, root)
    narrow_distributed(root)
    return Replaced(root, _by_name(plan), known)


def narrow_distributed(root: nn.Module) -> None:
    """``fp16_params``: distributed modules are 16-bit; others, and what comes in, are a script's
    business. Those whose parameters have no storage yet stay as they are."""
    if begins_in_fp16():
        for module in root.modules():
            if isinstance(module, DistributedModule) and not has_delayed(module):
                module.half()


def registrations_with(root: nn.Module, degree: int) -> dict[str, Registration]:
    """What ``degree`` tensor ranks would replace in a model that is annotated, by name."""
    return _by_name(plan_tensor_parallelism(root, _lookup, degree))


def _by_name(plan: TensorPlan) -> dict[str, Registration]:
    return {"" if one.name == "(root)" else one.name: one.registration for one in plan.replacements}


def _known(root: nn.Module) -> dict[str, Registration]:
    found = ((name, _lookup(module)) for name, module in root.named_modules())
    return {name: registration for name, registration in found if registration is not None}


def _lookup(module: nn.Module) -> Registration | None:
    own = registration_of(module)
    if own is not None or not state.cfg.predefined_hooks:
        return own
    return predefined_registration(module)


def _refuse_heads(plan: TensorPlan, degree: int) -> None:
    left = transformers_left(plan)
    if not left:
        return
    more = f"; so with {len(left) - 1} more" if len(left) > 1 else ""
    raise SMPTensorParallelError(
        f"tensor_parallel_degree is {degree}, and no annotated transformer can be split: "
        f"{left[0].name}: {left[0].reason}{more}; choose a degree that divides, or annotate less"
    )


def _made(one: Replacement, degree: int) -> nn.Module:
    registration, plain = one.registration, one.module
    target = registration.dist_module
    match = bool(state.cfg._match_weights)
    late = (match or degree == 1) and has_delayed(plain)
    dtype = next((p.dtype for p in plain.parameters() if p.is_floating_point()), None)
    try:
        with default_type(dtype), delayed() if late else contextlib.nullcontext():
            module = target(*one.args, **one.kwargs)
            if match or degree == 1:
                _copy_weights(one, module, required=match)
    except SMPTensorParallelError as error:
        raise SMPTensorParallelError(f"module {one.name}: {error}") from error
    except Exception as error:
        raise SMPTensorParallelError(
            f"module {one.name} cannot become {target.__name__}: {type(error).__name__}: {error}"
        ) from error
    module.train(plain.training)
    for attribute in ("_smp_partition", "config"):  # config: scripts read it off Hugging Face's
        if attribute in plain.__dict__:
            module.__dict__[attribute] = plain.__dict__[attribute]
    _freeze(one, module)
    if registration.forward_hook is not None:
        module.register_forward_pre_hook(
            _arguments_mapped(one.name, registration.forward_hook), with_kwargs=True
        )
    if registration.return_hook is not None:
        module.register_forward_hook(_result_mapped(registration.return_hook))
    return module


def _arguments_mapped(name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    def mapped(
        _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        result = hook(*args, **kwargs)
        pair = isinstance(result, (tuple, list)) and len(result) == 2
        if not (pair and isinstance(result[0], (tuple, list)) and isinstance(result[1], Mapping)):
            raise SMPTensorParallelError(
                f"module {name}: forward_hook {getattr(hook, '__qualname__', hook)} returned "
                f"{type(result).__name__}; expected (args, kwargs), a tuple and a dict"
            )
        return tuple(result[0]), dict(result[1])

    return mapped


def _result_mapped(hook: Callable[[Any], Any]) -> Callable[..., Any]:
    def mapped(_module: nn.Module, _args: Any, result: Any) -> Any:
        return hook(result)

    return mapped


def _freeze(one: Replacement, module: nn.Module) -> None:
    """Parameters that stand for frozen ones are frozen."""
    plain = dict(one.module.named_parameters(remove_duplicate=False))
    if all(parameter.requires_grad for parameter in plain.values()):
        return
    # Translated as their values are, of which parts may come from one of both kinds.
    trained: Mapping[str, Any] = {
        name: torch.full((), float(parameter.requires_grad)).expand(parameter.shape)
        for name, parameter in plain.items()
    }
    if one.registration.from_plain is not None:
        trained = one.registration.from_plain(trained)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if name in trained and not trained[name].any():
            parameter.requires_grad_(False)


def _copy_weights(one: Replacement, module: nn.Module, *, required: bool) -> None:
    """This rank's slices of the values of the module that is replaced. Where they do not fit,
    raises SMPTensorParallelError if they are ``required`` by ``_match_weights``, and else says so.
    """
    plain: Mapping[str, Any] = one.module.state_dict()
    if one.registration.from_plain is not None:
        plain = one.registration.from_plain(plain)
    entries = module.state_dict(keep_vars=True)
    values = {
        name: slice_of(plain[name], distribution_axis(entry))
        for name, entry in entries.items()
        if name in plain
    }
    misfit = _misfit(one, module, entries, plain, values)
    if misfit is not None and required:
        raise SMPTensorParallelError(
            f"_match_weights finds {misfit}; register the class without it"
        )
    if misfit is not None:
        warning(
            f"tensor parallelism: module {one.name} begins with new values, for there are {misfit}"
        )
        return
    with torch.no_grad():
        for name, entry in entries.items():
            entry.copy_(values[name])


def _misfit(
    one: Replacement,
    module: nn.Module,
    entries: Mapping[str, torch.Tensor],
    plain: Mapping[str, torch.Tensor],
    values: Mapping[str, torch.Tensor],
) -> str | None:
    """Why ``values``, of ``plain``, are not those of ``module``."""
    before, after = type(one.module).__name__, type(module).__name__
    missing = sorted(entries.keys() - values.keys())
    if missing:
        return (
            f"no values for {', '.join(missing[:4])} ({len(missing)} in all) of {after} in {before}"
        )
    for name, entry in entries.items():
        if values[name].shape != entry.shape:
            return (
                f"values of shape {tuple(plain[name].shape)} for {name} in {before}, of which "
                f"{after} has {tuple(entry.shape)} here"
            )
    return None

# SPDX-License-Identifier: Apache-2.0
"""Puts distributed modules in the place of those that a plan names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._partition.delayed_parameters import has_delayed, materialize
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


def replace_annotated(root: nn.Module) -> tuple[nn.Module, dict[str, Registration]]:
    """The model with distributed modules where annotations ask for them, and what became of each
    name.

    The root itself may be replaced; its name is empty then. New parameters have values of their
    own, or with ``_match_weights`` those of the modules that they replace. Not collective, but
    all ranks do the same.

    Raises SMPTensorParallelError, naming modules and numbers, if there are annotated transformers
    and not one of them can be split for its sizes: next to nothing would be split then.
    """
    if state.cfg.fp16_params and not begins_in_fp16():
        warning(
            "fp16_params is ignored: bf16 makes parameters bfloat16, with masters that begin with "
            "all 32 bits; leave fp16_params out"
        )
    degree = ranks.tp_size()
    if degree == 1:
        narrow_distributed(root)
        return root, {}
    plan = plan_tensor_parallelism(root, _lookup, degree)
    for line in lines(plan):
        info(line)
    _refuse_heads(plan, degree)
    match = bool(state.cfg._match_weights)
    if match and has_delayed(root):
        materialize(root, list(root.modules()))
    made = {one.module: _made(one, match) for one in plan.replacements}
    for parent in list(root.modules()):
        for name, child in parent._modules.items():
            if child in made:
                parent._modules[name] = made[child]
    root = made.get(root, root)
    narrow_distributed(root)
    return root, _by_name(plan)


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


def _made(one: Replacement, match: bool) -> nn.Module:
    registration, plain = one.registration, one.module
    target = registration.dist_module
    try:
        with _default_type(plain):
            module = target(*one.args, **one.kwargs)
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
    if match:
        _copy_weights(one, module)
    _freeze(one, module)
    if registration.forward_hook is not None:
        module.register_forward_pre_hook(
            _arguments_mapped(one.name, registration.forward_hook), with_kwargs=True
        )
    if registration.return_hook is not None:
        module.register_forward_hook(_result_mapped(registration.return_hook))
    return module


@contextmanager
def _default_type(plain: nn.Module) -> Iterator[None]:
    """New parameters are of the type of those of ``plain``."""
    before = torch.get_default_dtype()
    like = next((p for p in plain.parameters() if p.is_floating_point()), None)
    torch.set_default_dtype(before if like is None else like.dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


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


def _copy_weights(one: Replacement, module: nn.Module) -> None:
    """``_match_weights``: this rank's slices of the values of the module that is replaced."""
    plain: Mapping[str, Any] = one.module.state_dict()
    if one.registration.from_plain is not None:
        plain = one.registration.from_plain(plain)
    entries = module.state_dict(keep_vars=True)
    missing = sorted(entries.keys() - plain.keys())
    if missing:
        raise SMPTensorParallelError(
            f"module {one.name}: _match_weights finds no values for {', '.join(missing[:4])} "
            f"({len(missing)} in all) of {type(module).__name__} in "
            f"{type(one.module).__name__}; register the class without it"
        )
    with torch.no_grad():
        for name, entry in entries.items():
            value = slice_of(plain[name], distribution_axis(entry))
            if value.shape != entry.shape:
                raise SMPTensorParallelError(
                    f"module {one.name}: _match_weights finds {name} of shape "
                    f"{tuple(plain[name].shape)} in {type(one.module).__name__}, of which "
                    f"{type(module).__name__} has {tuple(entry.shape)} here"
                )
            entry.copy_(value)

# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing of modules of the partitioned model.

>>> import torch
>>> import smdistributed.modelparallel.torch as smp
>>> smp.init()
>>> model = smp.DistributedModel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
>>> smp.set_activation_checkpointing(model.get_module(), strategy="group_2")
>>> model(torch.ones(1, 2)).shape
torch.Size([1, 2])
>>> smp.shutdown()
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import nn

from smdistributed.modelparallel.torch._ranks.log import warning
from smdistributed.modelparallel.torch._recompute.recomputation import run_region
from smdistributed.modelparallel.torch.exceptions import SMPPartitionError, SMPValidationError
from smdistributed.modelparallel.torch.ports import Model, Owners, Region
from smdistributed.modelparallel.torch.state_mod import state

_MARK = "_smp_activation_checkpointing"
_CALLED = "_smp_checkpointed_in_trace"


class Checkpointing(NamedTuple):
    """Options of a module's checkpointing."""

    preserve_rng_state: bool = True
    strategy: str = "each"


# --- What scripts call ---


def set_activation_checkpointing(
    module: nn.Module,
    preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
    strategy: str = "each",
) -> None:
    """Has ``module`` recompute its activations in backward instead of keeping them.

    To be called after ``smp.DistributedModel``, alike on all ranks. Without effect where gradients
    are off. The children of an ``nn.Sequential`` are checkpointed in groups by ``strategy``:
    ``each`` alone, ``contiguous`` those of one partition together, ``group_N`` at most N together.

    Args:
        module: a module of the model, whole on one partition. Under ``auto_partition`` one that is
            split is left as it is, with a warning.
        preserve_rng_state: recompute with the random numbers of the forward.
        pack_args_as_tuple: accepted for ``nn.Sequential``; tuples between its children are seen.
        strategy: for ``nn.Sequential``.

    Raises:
        SMPValidationError: something other than a module of the model, or an unknown strategy.
        SMPPartitionError: the module is split by hand over partitions.
    """
    model = _model("smp.set_activation_checkpointing")
    if not isinstance(module, nn.Module):
        raise SMPValidationError(
            f"smp.set_activation_checkpointing got {type(module).__name__}; expected a module"
        )
    if not isinstance(module, nn.Sequential) and (pack_args_as_tuple or strategy != "each"):
        raise SMPValidationError(
            "smp.set_activation_checkpointing: strategy and pack_args_as_tuple are for "
            f"nn.Sequential, this is {type(module).__name__}"
        )
    if _group_size(strategy) != 1 and type(module).forward is not nn.Sequential.forward:
        raise SMPValidationError(
            f"smp.set_activation_checkpointing: {type(module).__name__} has a forward of its own, "
            f"so its children cannot be run in groups by strategy {strategy!r}; use each"
        )
    if all(module is not known for known in model.get_module().modules()):
        raise SMPValidationError(
            f"smp.set_activation_checkpointing: this {type(module).__name__} is no part of the "
            "model; pass a module below model.get_module()"
        )
    module.__dict__[_MARK] = Checkpointing(preserve_rng_state, strategy)
    if model.partitioned:
        _install(model, module)


def checkpoint(
    module: nn.Module, *args: Any, preserve_rng_state: bool = True, **kwargs: Any
) -> Any:
    """Calls ``module`` and recomputes its activations in backward instead of keeping them.

    For use in the forward of a module around it. The module runs, and recomputes, where it lives.

    Args:
        module: a module of the model.
        args, kwargs: what it is called with; tensors must not be changed in place afterwards.
        preserve_rng_state: recompute with the random numbers of the forward.

    Returns:
        What ``module`` returns.

    Raises:
        SMPValidationError: something other than a module.
    """
    model = _model("checkpoint")
    if not isinstance(module, nn.Module):
        raise SMPValidationError(
            f"checkpoint got {getattr(module, '__name__', type(module).__name__)}, a "
            f"{type(module).__name__}; it takes an nn.Module, not a function"
        )
    region = [module] if _whole(model, module) else None
    return _run(model, region, module, args, kwargs, preserve_rng_state)


def checkpoint_sequential(
    sequential_module: nn.Sequential,
    input: Any,  # noqa: A002 - the documented name
    strategy: str = "each",
    preserve_rng_state: bool = True,
    pack_args_as_tuple: bool = False,
) -> Any:
    """Runs the children of ``sequential_module`` one after the other, in groups by ``strategy``
    (see :func:`set_activation_checkpointing`) that recompute their activations in backward.

    Args:
        sequential_module: part of the model.
        input: of the first child.
        strategy: ``each``, ``contiguous`` or ``group_N``.
        preserve_rng_state: recompute with the random numbers of the forward.
        pack_args_as_tuple: accepted; tuples between children are seen.

    Returns:
        What the last child returns.

    Raises:
        SMPValidationError: something other than an ``nn.Sequential``, or an unknown strategy.
    """
    model = _model("checkpoint_sequential")
    if not isinstance(sequential_module, nn.Sequential):
        raise SMPValidationError(
            f"checkpoint_sequential got {type(sequential_module).__name__}; it takes nn.Sequential"
        )
    group_size = _group_size(strategy)
    for group in _groups(model, list(sequential_module), group_size):
        region = group if all(_whole(model, child) for child in group) else None
        input = _run(model, region, group[0], (input,), {}, preserve_rng_state)  # noqa: A001
    return input


# --- Before the partition is known ---


def regions_of(root: nn.Module) -> list[list[nn.Module]]:
    """Modules that one recompute each will run, as far as known before modules are on partitions:
    those annotated below ``root``, and those that the trace saw a forward call so."""
    regions = []
    for module in root.modules():
        if module.__dict__.pop(_CALLED, False):
            regions.append([module])
        if _MARK in module.__dict__:
            how: Checkpointing = module.__dict__[_MARK]
            row = list(module) if isinstance(module, nn.Sequential) else [module]
            size = _group_size(how.strategy) or len(row)
            regions += [row[first : first + size] for first in range(0, len(row), size)]
    return regions


# --- Where the partition is known ---


def install_marked(model: Model) -> None:
    """From now on annotated modules recompute; called when the partition is there."""
    for module in model.get_module().modules():
        if _MARK in module.__dict__:
            _install(model, module)


def run_modules(modules: list[nn.Module], args: tuple[Any, ...], kwargs: dict[str, Any],
                preserve_rng_state: bool) -> Any:  # fmt: skip
    """One region of modules of this partition, each of which gets what the one before returned."""

    def chain(*own_args: Any, **own_kwargs: Any) -> Any:
        result = modules[0](*own_args, **own_kwargs)
        for module in modules[1:]:
            result = module(result)
        return result

    return run_region(modules, chain, args, kwargs, preserve_rng_state=preserve_rng_state)


def _install(model: Model, module: nn.Module) -> None:
    how: Checkpointing = module.__dict__[_MARK]
    ownership = model.ownership
    own_forward = type(module).forward is not nn.Sequential.forward
    if isinstance(module, nn.Sequential) and (own_forward or _group_size(how.strategy) == 1):
        # Each child by itself: calls pass through the children as without checkpointing.
        for child in module:
            child.__dict__[_MARK] = how
            _install(model, child)
    elif isinstance(module, nn.Sequential):
        for child in module:
            _whole(model, child)  # raises on all ranks, not on the owner alone
        if ownership.owns(module):
            module.__dict__["forward"] = functools.partial(
                checkpoint_sequential,
                module,
                strategy=how.strategy,
                preserve_rng_state=how.preserve_rng_state,
            )
    elif _whole(model, module) and ownership.owns(module):
        plain = module.__dict__.get("_smp_plain_forward", module.forward)
        module.__dict__["_smp_plain_forward"] = plain
        module.__dict__["forward"] = functools.partial(
            _forward_of_module, module, plain, how.preserve_rng_state
        )


def _forward_of_module(
    module: nn.Module,
    plain: Callable[..., Any],
    preserve_rng_state: bool,
    *args: Any,
    **kwargs: Any,
) -> Any:
    return run_region([module], plain, args, kwargs, preserve_rng_state=preserve_rng_state)


def _run(
    model: Model,
    region: list[nn.Module] | None,
    first: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    preserve_rng_state: bool,
) -> Any:
    """A region here or on its partition; without a region, ``first`` as it is."""
    if state.is_tracing:
        for module in region or []:
            module.__dict__[_CALLED] = True
    if region is None or state.is_tracing or not model.partitioned:
        result = first(*args, **kwargs)
        for module in (region or [])[1:]:
            result = module(result)
        return result
    ownership = model.ownership
    if ownership.of_module(first) == ownership.partition:
        return run_modules(region, args, kwargs, preserve_rng_state)
    ids = tuple(ownership.module_id(module) for module in region)
    return model.remote_modules.call_region(Region(ids, preserve_rng_state), args, kwargs)


def _groups(model: Model, children: list[nn.Module], size: int | None) -> Iterator[list[nn.Module]]:
    """Consecutive children of one partition, at most ``size`` of them."""
    group: list[nn.Module] = []
    for child in children:
        if group and (len(group) == size or not _together(model, group[-1], child)):
            yield group
            group = []
        group.append(child)
    if group:
        yield group


def _together(model: Model, one: nn.Module, other: nn.Module) -> bool:
    if not model.partitioned:
        return False
    same = model.ownership.of_module(one) == model.ownership.of_module(other)
    return same and _whole(model, one) and _whole(model, other)


def _whole(model: Model, module: nn.Module) -> bool:
    """True if the module and all below it are on one partition.

    Otherwise raises SMPPartitionError, or warns if the partition was made by itself.
    """
    if not model.partitioned:
        return True
    ownership = model.ownership
    own = ownership.of_module(module)
    stray = next((part for part in module.modules() if ownership.of_module(part) != own), None)
    if stray is None:
        return True
    text = (
        f"activation checkpointing of module {_name(ownership, module)}: it is on partition {own}, "
        f"but {_name(ownership, stray)} below it on {ownership.of_module(stray)}"
    )
    if not state.cfg.auto_partition:
        raise SMPPartitionError(f"{text}; checkpoint modules that are whole on one partition")
    if _MARK + "_told" not in module.__dict__:
        module.__dict__[_MARK + "_told"] = True
        warning(f"{text}; it is not checkpointed")
    return False


def _name(ownership: Owners, module: nn.Module) -> str:
    return ownership.module_names[ownership.module_id(module)]


def _group_size(strategy: str) -> int | None:
    """Most children that a group has; None for no limit.

    >>> _group_size("each"), _group_size("contiguous"), _group_size("group_3")
    (1, None, 3)
    """
    if strategy in ("each", "contiguous"):
        return 1 if strategy == "each" else None
    match = re.fullmatch(r"group_([1-9]\d*)", strategy) if isinstance(strategy, str) else None
    if match is None:
        raise SMPValidationError(
            f"checkpointing strategy {strategy!r} is unknown; it is each, contiguous or group_N"
        )
    return int(match[1])


def _model(what: str) -> Model:
    state.require_initialized(what)
    if state.model is None:
        raise SMPValidationError(
            f"{what} was called before smp.DistributedModel; wrap the model first"
        )
    return state.model

# SPDX-License-Identifier: Apache-2.0
"""First values of a split model: those that a script gave its modules, wherever it did.

A parameter without values is drawn, if its module is replaced, and else an error. It has none if
nobody wrote its memory, or if it stands in a model of Transformers that did not get its own
initialization (scripts replace ``init_weights`` to save time) and still is what torch's constructor
made of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum

from torch import nn

from smdistributed.modelparallel.torch._annotations.constructed_values import is_as_constructed
from smdistributed.modelparallel.torch._annotations.unwritten_memory import unwritten_part
from smdistributed.modelparallel.torch._delayed.delayed_parameters import writes_to
from smdistributed.modelparallel.torch.exceptions import SMPTensorParallelError


class Origin(IntEnum):
    """Origin of the values of a parameter; for one that modules share, the largest."""

    GIVEN = 0
    CONSTRUCTOR = 1
    """Torch's, of a layer whose model was to initialize it."""
    NOBODY = 2
    UNKNOWN = 3
    """The constructor or the script."""
    HALF = 4
    """Some elements were never written, or are NaN."""


#: Origins of parameters that have no values of their own.
DRAWN = (Origin.CONSTRUCTOR, Origin.NOBODY)


def origins(root: nn.Module) -> dict[nn.Parameter, Origin]:
    """Origins of the values of the parameters of ``root``."""
    initializing = _of_transformers(root)
    found: dict[nn.Parameter, Origin] = {}
    for module in root.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                origin = _origin(module, name, parameter, module in initializing)
                found[parameter] = max(origin, found.get(parameter, Origin.GIVEN))
    return found


def _origin(
    module: nn.Module, name: str, parameter: nn.Parameter, to_be_initialized: bool
) -> Origin:
    if parameter.is_meta:
        if writes_to(parameter) == 0:
            return Origin.NOBODY
    elif unwritten := unwritten_part(parameter):
        return Origin.NOBODY if unwritten == 1 else Origin.HALF
    if not to_be_initialized or getattr(parameter, "_is_hf_initialized", False):
        return Origin.GIVEN
    same = is_as_constructed(module, name)
    if same is None:
        return Origin.UNKNOWN
    return Origin.CONSTRUCTOR if same else Origin.GIVEN


def _of_transformers(root: nn.Module) -> set[nn.Module]:
    """The modules of models that Transformers initializes, and has not. It notes on each that it
    has, also where it loaded one."""
    kind = getattr(sys.modules.get("transformers.modeling_utils"), "PreTrainedModel", None)
    if kind is None:
        return set()
    models = [module for module in root.modules() if isinstance(module, kind)]
    return {
        module
        for model in models
        for module in model.modules()
        if not getattr(module, "_is_hf_initialized", False)
    }


def refuse_unknown(
    replaced: Iterable[tuple[str, nn.Module]], root: nn.Module, found: Mapping[nn.Parameter, Origin]
) -> None:
    """Raises SMPTensorParallelError, naming the parameter, where it cannot be told whether a module
    that is replaced was given values, and where one that is not has none."""
    taken: set[nn.Parameter] = set()
    for prefix, module in replaced:
        for name, parameter in module.named_parameters(remove_duplicate=False):
            taken.add(parameter)
            _refuse_replaced(_joined(prefix, name), found[parameter])
    for name, parameter in _left(root, taken):
        origin = found[parameter]
        if origin is Origin.NOBODY or (origin is Origin.CONSTRUCTOR and _varies(parameter)):
            raise SMPTensorParallelError(
                f"parameter {name} was never initialized, and tensor parallelism does not replace "
                "its module, so that it would be trained from what its memory or torch's "
                "constructor left: let the model be initialized (do not replace init_weights or "
                "torch.nn.init), or load its weights, before smp.DistributedModel"
            )


def _refuse_replaced(name: str, origin: Origin) -> None:
    if origin is Origin.HALF:
        raise SMPTensorParallelError(
            f"parameter {name} has values in part: others of its elements were never written, or "
            "are NaN; initialize or load all of it before smp.DistributedModel"
        )
    if origin is Origin.UNKNOWN:
        raise SMPTensorParallelError(
            f"parameter {name} is of a model whose initialization by Transformers was skipped, and "
            "it is not known whether the script gave it values since: build the model inside "
            "smp.model_creation(tensor_parallelism=True), or let Transformers initialize it "
            "(init_weights) before its weights are loaded"
        )


def _left(root: nn.Module, taken: set[nn.Parameter]) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, p) for name, p in root.named_parameters() if p not in taken)


def _varies(parameter: nn.Parameter) -> bool:
    """True if a parameter is more than the one value that norms begin with in any case."""
    if parameter.is_meta or parameter.numel() < 2:
        return False
    flat = parameter.detach().reshape(-1)
    return bool((flat != flat[0]).any())


def _joined(prefix: str, name: str) -> str:
    return name if prefix == "(root)" else f"{prefix}.{name}"

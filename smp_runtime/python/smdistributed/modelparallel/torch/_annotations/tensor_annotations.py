# SPDX-License-Identifier: Apache-2.0
"""Annotations of modules that a script wants split over its tensor-parallel ranks.

Annotations are read when the model is wrapped, so that a script may change it after annotating it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from smdistributed.modelparallel.torch._annotations.constructed_values import (
    filled_with_nan,
    noting_constructed,
)
from smdistributed.modelparallel.torch._annotations.partition_annotations import annotating
from smdistributed.modelparallel.torch.exceptions import SMPTensorParallelError, SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state

_OWN = "_smp_tensor_parallel"  # on a module made in a context: for it alone
_BELOW = "_smp_tensor_parallel_below"  # for it and what is below it, now or later


@dataclass(frozen=True)
class TensorAnnotation:
    """A script's annotation: whether to split, and keywords for the distributed modules."""

    enabled: bool
    config: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def tensor_parallelism(enabled: bool = True, **config: Any) -> Iterator[None]:
    """Annotates modules created inside to be split; the innermost context has precedence.

    When the model is wrapped, the outermost annotated module of each branch that the library or
    ``smp.tp_register`` knows is replaced by its distributed counterpart, made anew. One whose
    sizes do not divide, or that shares weights with others, stays as it is; the log says why.
    Keywords override arguments of the distributed modules. On one tensor rank modules are replaced,
    too, so that scripts find the names of distributed ones whatever the degree; nothing is split
    there. Values stay those of the modules that are replaced; a parameter that was never given any
    is drawn from ``tensor_parallel_seed``.

    >>> import smdistributed.modelparallel.torch as smp
    >>> with smp.tensor_parallelism(fused_bias_gelu=True):
    ...     layer = nn.Linear(2, 2)
    >>> annotation_of(layer, None)
    TensorAnnotation(enabled=True, config={'fused_bias_gelu': True})
    >>> annotation_of(nn.Linear(2, 2), None)
    """
    observed = _observed() if enabled else contextlib.nullcontext()
    with annotating(_OWN, TensorAnnotation(bool(enabled), config)), observed:
        yield


_observing = False


@contextmanager
def _observed() -> Iterator[None]:
    """Notes what ``first_values`` asks later. The outermost context does."""
    global _observing  # noqa: PLW0603 - the contexts of a script are nested
    if _observing:
        yield
        return
    _observing = True
    try:
        with noting_constructed(), filled_with_nan():
            yield
    finally:
        _observing = False


def set_tensor_parallelism(module: nn.Module, enabled: bool = True, **config: Any) -> None:
    """Annotates ``module`` and all below it, also what is put there before the model is wrapped.

    Args:
        module: where the annotation holds; it replaces those below it.
        enabled: False keeps it whole.
        config: overrides arguments of the distributed modules.

    Raises:
        SMPValidationError: something other than a module.
        SMPTensorParallelError: the model is wrapped already.

    >>> import smdistributed.modelparallel.torch as smp
    >>> model = nn.Sequential(nn.Linear(2, 2))
    >>> smp.set_tensor_parallelism(model)
    >>> annotation_of(model, None).enabled
    True
    """
    if not isinstance(module, nn.Module):
        raise SMPValidationError(
            f"smp.set_tensor_parallelism got {type(module).__name__}; expected a torch.nn.Module"
        )
    if state.model is not None:
        raise SMPTensorParallelError(
            "smp.set_tensor_parallelism came too late: smp.DistributedModel replaces modules when "
            "it wraps the model; call it before"
        )
    for inner in module.modules():
        inner.__dict__.pop(_OWN, None)
        inner.__dict__.pop(_BELOW, None)
    module.__dict__[_BELOW] = TensorAnnotation(bool(enabled), config)


def annotation_of(module: nn.Module, inherited: TensorAnnotation | None) -> TensorAnnotation | None:
    """The annotation that holds for ``module``; ``inherited`` is what holds below its parent."""
    own: TensorAnnotation | None = module.__dict__.get(_OWN)
    return own or annotation_below(module, inherited)


def annotation_below(
    module: nn.Module, inherited: TensorAnnotation | None
) -> TensorAnnotation | None:
    """Annotation that children of ``module`` inherit if they have none of their own."""
    below: TensorAnnotation | None = module.__dict__.get(_BELOW)
    return below or inherited

# SPDX-License-Identifier: Apache-2.0
"""Notes the values that constructors leave in parameters, to tell them later from loaded ones.

A module's constructor is through when its parent takes it in. Of each of its parameters some
elements are kept then, or, where it has no storage, the number of its writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from smdistributed.modelparallel.torch._delayed.delayed_parameters import writes_to

_RECORD = "_smp_constructed"
_SAMPLES = 4096  # all elements of biases and norms, which are near what constructors make of them


@contextmanager
def noting_constructed() -> Iterator[None]:
    """Inside, modules remember what their constructors left in their parameters.

    >>> with noting_constructed():
    ...     model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    >>> _ = model[1].weight.data.normal_()
    >>> is_as_constructed(model[0], "weight"), is_as_constructed(model[1], "weight")
    (True, False)
    >>> is_as_constructed(nn.Linear(2, 2), "weight") is None
    True
    """

    def note(_parent: nn.Module, _name: str, child: nn.Module | None) -> None:
        if child is not None:
            note_constructed(child)

    handle = register_module_module_registration_hook(note)
    try:
        yield
    finally:
        handle.remove()


def note_constructed(module: nn.Module) -> None:
    """Notes the values that the own parameters of ``module`` have now, unless that was done."""
    record = module.__dict__.setdefault(_RECORD, {})
    for name, parameter in module._parameters.items():
        if parameter is not None and name not in record:
            record[name] = _mark(parameter)


def is_as_constructed(module: nn.Module, name: str) -> bool | None:
    """True if the parameter ``name`` of ``module`` has the values of its constructor; None if these
    are not known."""
    then = module.__dict__.get(_RECORD, {}).get(name)
    if then is None:
        return None
    now = _mark(module._parameters[name])
    if isinstance(then, torch.Tensor) and isinstance(now, torch.Tensor):
        return torch.equal(then.to(now), now)
    return type(then) is type(now) and bool(then == now)


def forget_constructed(root: nn.Module) -> None:
    """Drops what the modules of ``root`` remember."""
    for module in root.modules():
        module.__dict__.pop(_RECORD, None)


def _mark(parameter: torch.Tensor | None) -> torch.Tensor | int | None:
    if parameter is None:
        return None
    if parameter.is_meta:
        return writes_to(parameter)
    flat = parameter.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _SAMPLES)][:_SAMPLES].clone()

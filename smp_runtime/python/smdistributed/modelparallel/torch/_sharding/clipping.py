# SPDX-License-Identifier: Apache-2.0
"""Clips gradients by their norm over a model that lies on several ranks."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._ranks.devices import computing_device
from smdistributed.modelparallel.torch._slices.parameter_slices import distribution_axis
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError, SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state


def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """``torch.nn.utils.clip_grad_norm_`` over all partitions and slices of the model.

    Each parameter counts once: slices on different tensor ranks are parts of one, and what is whole
    on all of them is one, too. Collective over the model-parallel group; call it between the step
    and ``optimizer.step()``.

    Args:
        parameters: those of the whole model.
        max_norm: gradients with a larger norm are scaled down to it.
        norm_type: above 0; ``inf`` for the largest element.

    Returns:
        The norm before clipping, a scalar tensor, the same on all ranks.

    Raises:
        SMPUnsupportedError: with sharded or 16-bit state; use ``optimizer.clip_master_grads``.
        SMPValidationError: ``norm_type`` is not above 0.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> parameter = torch.nn.Parameter(torch.zeros(2))
    >>> parameter.grad = torch.tensor([3.0, 4.0])
    >>> smp.clip_grad_norm_([parameter], 1.0), parameter.grad
    (tensor(5.), tensor([0.6000, 0.8000]))
    >>> smp.shutdown()
    """
    session = state.require_initialized("smp.clip_grad_norm_")
    if state.model is not None and state.model.sharded is not None:
        raise SMPUnsupportedError(
            "smp.clip_grad_norm_ clips the gradients of parameters, and this job steps masters; "
            "call optimizer.clip_master_grads(max_norm)"
        )
    if norm_type <= 0:
        raise SMPValidationError(f"smp.clip_grad_norm_: norm_type is {norm_type}; it is above 0")
    given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    slices: list[torch.Tensor] = []
    whole: list[torch.Tensor] = []
    for parameter in dict.fromkeys(given):
        if parameter.grad is not None:
            kind = whole if distribution_axis(parameter) is None else slices
            kind.append(parameter.grad.detach())
    norm = _runtime.clip_gradients(
        session=session,
        what="smp.clip_grad_norm_",
        slices=slices,
        whole=whole,
        max_norm=max_norm,
        norm_type=norm_type,
        # A rank without gradients takes part, too, by the backend that the others use.
        device=(slices + whole)[0].device if slices or whole else computing_device(),
    )
    return norm.to((slices + whole)[0].dtype if slices or whole else torch.float32)

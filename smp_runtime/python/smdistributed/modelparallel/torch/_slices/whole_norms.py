# SPDX-License-Identifier: Apache-2.0
"""Norms of parameters and gradients of which ranks hold slices."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist

from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch._slices.parameter_slices import distribution_axis
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state

Tensors = list[torch.Tensor]


def with_grad(parameters: Iterable[torch.Tensor]) -> Tensors:
    return [parameter for parameter in parameters if parameter.grad is not None]


def grad_of(parameter: torch.Tensor) -> torch.Tensor:
    """The gradient; raises SMPValidationError if it is sparse or complex."""
    grad = parameter.grad
    assert grad is not None
    if grad.is_complex():
        raise SMPValidationError(
            f"the fused optimizers take no complex parameters, and one of shape "
            f"{tuple(parameter.shape)} is; use those of torch.optim"
        )
    if grad.is_sparse:
        raise SMPValidationError("the fused optimizers take no sparse gradients; use SparseAdam")
    return grad


class WholeNorms:
    """Norms of whole parameters where the model's own are stepped: of those that tensor ranks hold
    slices of, over all slices."""

    def of(self, parameters: Tensors, values: Tensors, norm_type: float = 2.0) -> Tensors:
        """The norms of ``values``, one a parameter. Collective over the tensor-parallel group,
        whose ranks hold slices of the same parameters."""
        norms = list(torch._foreach_norm(values, norm_type)) if values else []
        if not state.initialized or ranks.tp_size() == 1:
            return norms
        sliced = [n for n, p in enumerate(parameters) if distribution_axis(p) is not None]
        if not sliced:
            return norms
        largest = norm_type == float("inf")
        parts = torch.stack([norms[n].double() for n in sliced])
        parts = parts if largest else parts.square()
        session = state.require_initialized("a fused optimizer")
        operation = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM
        group = session.groups.internal_group("TP")
        session.all_reduce("norms of a fused optimizer", parts, group, operation)
        whole = parts if largest else parts.sqrt()
        for n, norm in zip(sliced, whole.unbind(), strict=True):
            norms[n] = norm.to(norms[n].dtype)
        return norms

    def of_gradients(self, parameters: Tensors) -> float:
        """The 2-norm of all gradients of the model. Collective over the model-parallel group."""
        # One of the tensor ranks speaks for what all of them hold.
        own = with_grad(parameters)
        grads = [grad_of(p) for p in own if not state.initialized or _counts_here(p)]
        square = torch.zeros(1, dtype=torch.float64)
        by_device: dict[torch.device, Tensors] = {}
        for norm in torch._foreach_norm(grads) if grads else ():
            by_device.setdefault(norm.device, []).append(norm.double())
        for norms in by_device.values():  # the host waits once for each device
            square += torch.stack(norms).square_().sum().cpu()
        if state.initialized and ranks.mp_size() > 1:
            session = state.require_initialized("a fused optimizer")
            group = session.groups.cpu_group("MP")
            operation = dist.ReduceOp.SUM
            session.all_reduce("the gradient norm of a fused optimizer", square, group, operation)
        return square.sqrt().item()


def _counts_here(parameter: torch.Tensor) -> bool:
    return distribution_axis(parameter) is not None or ranks.tp_rank() == 0

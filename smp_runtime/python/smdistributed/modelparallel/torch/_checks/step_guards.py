# SPDX-License-Identifier: Apache-2.0
"""Calls that belong before, after or elsewhere than in the function of a step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler as _TorchScaler

from smdistributed.modelparallel.torch.amp import check_scaler
from smdistributed.modelparallel.torch.exceptions import SMPStepError
from smdistributed.modelparallel.torch.state_mod import holding, state

_ZERO_GRAD = torch.optim.Optimizer.zero_grad
_GRAD = torch.autograd.grad
_SCALE = _TorchScaler.scale


@contextlib.contextmanager
def refused_in_a_step() -> Iterator[None]:
    """Inside, what belongs elsewhere raises SMPStepError where it does harm.

    ``loss.backward()`` would run the backward of this rank's modules alone, add up over
    microbatches what is to be averaged, and leave out the loss scale; ``zero_grad()`` would clear
    the gradients of the microbatches before, and on one partition only. ``torch.autograd.grad``
    finds no graph through modules that run elsewhere; torch's own GradScaler, which scales a loss
    here, would tell no other rank of an overflow.
    """
    cfg = state.cfg
    if cfg.pipeline_parallel_degree == 1 and cfg.microbatches == 1 and not cfg.fp16:
        yield
        return
    plain: Callable[..., None] = torch.Tensor.backward

    def refuse(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        if torch._C._current_graph_task_id() != -1:  # within a backward, as some modules do
            plain(self, *args, **kwargs)
            return
        raise SMPStepError(
            "loss.backward() was called inside a function decorated with smp.step; call "
            "model.backward(loss) in its place, which averages over the microbatches and runs the "
            "backward of all partitions (with a GradScaler: model.backward(scaler.scale(loss)))"
        )

    grad = _explained_grad if cfg.pipeline_parallel_degree > 1 else _GRAD
    with (
        holding(torch.Tensor, backward=refuse),
        holding(_TorchScaler, scale=_checked_scale),
        holding(torch.autograd, grad=grad),
        holding(torch.optim.Optimizer, zero_grad=_refuse_zero_grad),
    ):
        yield


@contextlib.contextmanager
def with_whole_gradients() -> Iterator[None]:
    """Inside, code of the step that reads ``grad`` of a parameter finds there what its backwards so
    far give, also where ``pipeline: zero_bubble`` leaves some of it for later."""
    if state.cfg.pipeline != "zero_bubble" or state.cfg.pipeline_parallel_degree == 1:
        yield
        return
    engine = state.require_engine()
    parameters: Any = nn.Parameter
    own = vars(nn.Parameter).get("grad")  # of a job with masters
    plain: Any = own or torch.Tensor.grad

    def get_grad(parameter: nn.Parameter) -> torch.Tensor | None:
        if torch._C._current_graph_task_id() == -1:  # not of a hook: these see what they wait for
            engine.complete_gradients()
        gradient: torch.Tensor | None = plain.__get__(parameter)
        return gradient

    parameters.grad = property(get_grad, plain.__set__, plain.__delete__)
    try:
        yield
    finally:
        if own is None:
            del parameters.grad
        else:
            parameters.grad = own


@contextlib.contextmanager
def without_fast_paths() -> Iterator[None]:
    """Inside, torch's transformer layers call their children, as they do in training.

    Their fast path in evaluation reads the children's parameters, which may be on other partitions,
    and hands nested tensors from layer to layer, which do not travel.
    """
    enabled = torch.backends.mha.get_fastpath_enabled()
    if state.cfg.pipeline_parallel_degree > 1:
        torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def _refuse_zero_grad(self: torch.optim.Optimizer, set_to_none: bool = True) -> None:
    if state.cfg.pipeline_parallel_degree == 1 and state.cfg.microbatches == 1:
        _ZERO_GRAD(self, set_to_none)
        return
    raise SMPStepError(
        f"{type(self).__name__}.zero_grad() was called inside a function decorated with smp.step, "
        "which runs once for each microbatch, on the first rank of a pipeline; call it before the "
        "step, on all ranks"
    )


def _explained_grad(*args: Any, **kwargs: Any) -> Any:
    try:
        return _GRAD(*args, **kwargs)
    except RuntimeError as error:
        raise SMPStepError(
            f"torch.autograd.grad failed inside a function decorated with smp.step: {error}. With "
            "several partitions the graph of the whole model exists in model.backward(loss) alone: "
            "train with pipeline_parallel_degree 1 where a loss needs gradients, such as a penalty"
        ) from error


def _checked_scale(self: _TorchScaler, outputs: Any) -> Any:
    check_scaler(self)
    return _SCALE(self, outputs)

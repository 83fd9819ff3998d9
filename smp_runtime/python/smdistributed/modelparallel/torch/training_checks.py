# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a training loop after which nothing would be learned, or something else, in silence.

They are seen where the library is asked to do something: at a step, at a backward and at the update
of any optimizer. What cannot be meant is an error; what is odd is one warning.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from smdistributed.modelparallel.torch import log
from smdistributed.modelparallel.torch.exceptions import SMPStepError
from smdistributed.modelparallel.torch.state_mod import state

if TYPE_CHECKING:
    from smdistributed.modelparallel.torch.model import DistributedModel

_SHOWN = 3  # names in a list


class TrainingChecks:
    """Watches the steps of one model and the updates of all optimizers, until ``close``."""

    def __init__(self, model: DistributedModel) -> None:
        self._model = weakref.ref(model)
        # Optimizers that have stepped: with parameters of the model, and with none of them.
        self._stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._foreign: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._updates_at_rate_0 = 0
        self._backwards_since_update = self._steps_since_update = 0
        self._coverage_is_known = False
        self._said: set[str] = set()
        self._hook = register_optimizer_step_pre_hook(self._before_update)

    def close(self) -> None:
        self._hook.remove()

    # --- Steps ---

    def before_step(self) -> None:
        """A step begins: by the second one of a loop its optimizers have been seen."""
        model = self._model()
        if model is None or not torch.is_grad_enabled():
            return
        if (self._stepped or self._foreign) and not self._coverage_is_known:
            self._coverage_is_known = True
            self._check_coverage(model)
        nobody_updates = state.optimizer is None and not self._stepped
        if model.sharded is not None and nobody_updates and self._backwards_since_update:
            self._warn(
                f"a step begins, the one before ran a backward, and there is no optimizer: with "
                f"{_kind_of_state()} only smp.DistributedOptimizer updates the model. Wrap the "
                "optimizer where it is made: optimizer = smp.DistributedOptimizer(optimizer)"
            )

    def after_step(self, backward_ran: bool) -> None:
        model = self._model()
        if backward_ran:
            self._backwards_since_update += 1
        elif model is not None and model.training and torch.is_grad_enabled():
            self._steps_since_update += 1

    # --- Updates ---

    def _before_update(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        model = self._model()
        if model is None or optimizer in self._foreign:
            return
        wrapped = state.optimizer is not None and optimizer is state.optimizer.optimizer
        if not wrapped and optimizer not in self._stepped:
            if _parameters(optimizer).isdisjoint(model.parameters()):
                self._foreign.add(optimizer)
                return
            if model.sharded is not None:
                raise SMPStepError(_unwrapped(optimizer))
        self._stepped.add(optimizer)
        if self._steps_since_update and not self._backwards_since_update:
            self._warn(
                f"{type(optimizer).__name__}.step() follows a step of the model in training mode "
                "that ran no backward: it changes nothing. Call model.backward(loss) inside the "
                "function decorated with smp.step, or model.eval() and torch.no_grad() around a "
                "step that only evaluates"
            )
        self._backwards_since_update = self._steps_since_update = 0
        self._check_rates(optimizer)

    def _check_rates(self, optimizer: torch.optim.Optimizer) -> None:
        """A warm-up may begin at 0; it does not stay there."""
        rates = [group["lr"] for group in optimizer.param_groups if "lr" in group]
        if any(isinstance(rate, torch.Tensor) and rate.is_cuda for rate in rates):
            return  # to look would be to wait for the GPU
        self._updates_at_rate_0 = self._updates_at_rate_0 + 1 if rates and not any(rates) else 0
        if self._updates_at_rate_0 == 2:
            self._warn(
                f"the learning rate of {type(optimizer).__name__} is 0 in all groups, for the "
                "second update: the model does not learn. Look at lr and at the scheduler"
            )

    def _check_coverage(self, model: DistributedModel) -> None:
        """Whether each parameter that could be trained is in an optimizer that steps."""
        covered: set[torch.Tensor] = set()
        others = set(self._stepped)
        if state.optimizer is not None:  # which may step masters in their place
            covered.update(state.optimizer.given_parameters())
            others.discard(state.optimizer.optimizer)
        covered.update(*map(_parameters, others))
        named = dict(model.named_parameters())
        missing = [n for n, p in named.items() if p.requires_grad and p not in covered]
        if not missing:
            return
        given = covered.union(*map(_parameters, self._foreign))
        strangers = len(given.difference(named.values()))
        if strangers:
            self._warn(
                f"an optimizer has {strangers} parameters that are not the model's, and none has "
                f"{_list(missing)}: it was made before smp.DistributedModel replaced modules "
                "(tensor parallelism) or made their values (delayed parameters). Make it from "
                "model.parameters() of the wrapped model"
            )
        else:
            self._warn(
                f"no optimizer that has stepped so far has {_list(missing)}: they stay as they "
                "are. Make the optimizer from all of model.parameters(), or freeze them with "
                "requires_grad_(False)"
            )

    def _warn(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            log.warning(text)


@contextlib.contextmanager
def backward_through_model() -> Iterator[None]:
    """Inside, ``loss.backward()`` raises SMPStepError where it is not what ``model.backward`` does:
    it would run the backward of this rank's modules alone, add up over microbatches what is to be
    averaged, and leave out the loss scale."""
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

    torch.Tensor.backward = refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.backward = plain  # type: ignore[method-assign]


def _parameters(optimizer: torch.optim.Optimizer) -> set[torch.Tensor]:
    return {parameter for group in optimizer.param_groups for parameter in group["params"]}


def _kind_of_state() -> str:
    """Why the model's parameters are no longer what is trained, in the words of the settings."""
    cfg = state.cfg
    if cfg.sharded_data_parallel_degree > 1:
        return f"sharded_data_parallel_degree={cfg.sharded_data_parallel_degree}"
    if cfg.shard_optimizer_state:
        return "shard_optimizer_state"
    return "bf16" if cfg.bf16 else "fp16"


def _unwrapped(optimizer: torch.optim.Optimizer) -> str:
    kind = type(optimizer).__name__
    return (
        f"{kind}.step() was called on the optimizer itself: with {_kind_of_state()} the model's "
        "parameters are copies of 32-bit master parameters, which only smp.DistributedOptimizer "
        "updates, so that nothing would be learned. Wrap it where it is made: optimizer = "
        f"smp.DistributedOptimizer({kind}(model.parameters(), ...))"
    )


def _list(names: list[str]) -> str:
    """
    >>> _list(["a", "b", "c", "d"])
    '4 parameters (a, b, c, ...)'
    >>> _list(["head.weight"])
    '1 parameter (head.weight)'
    """
    noun = "parameter" if len(names) == 1 else "parameters"
    more = ", ..." if len(names) > _SHOWN else ""
    return f"{len(names)} {noun} ({', '.join(names[:_SHOWN])}{more})"

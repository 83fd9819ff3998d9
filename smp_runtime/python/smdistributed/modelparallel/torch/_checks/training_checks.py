# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a training loop after which nothing would be learned, or something else, in silence.

They are seen where the library is asked to do something: at a step, at a backward and at the update
of any optimizer. What cannot be meant is an error; what is odd is one warning.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from smdistributed.modelparallel.torch._checks.input_check import ReplicaBatches
from smdistributed.modelparallel.torch._checks.mastered_parameters import (
    MasteredParameters,
    MissingGradients,
    check_published,
)
from smdistributed.modelparallel.torch._checks.parameter_names import listed
from smdistributed.modelparallel.torch._checks.torch_clipping import (
    ClippingWatch,
    may_clip,
    refusal,
)
from smdistributed.modelparallel.torch._checks.training_audit import TrainingAudit
from smdistributed.modelparallel.torch._ranks import log, ranks
from smdistributed.modelparallel.torch._sharding.precision import kind_of_state
from smdistributed.modelparallel.torch.exceptions import SMPStepError
from smdistributed.modelparallel.torch.ports import Model, Sharded
from smdistributed.modelparallel.torch.state_mod import state

_UPDATES = 3  # after which a loop has shown whether it clears gradients

_Gradient = tuple["weakref.ref[torch.Tensor]", int]  # and its version when it was used


class TrainingChecks:
    """Watches the steps of one model, and the updates of all optimizers from ``open`` to
    ``close``."""

    def __init__(self, model: Model) -> None:
        self._model = weakref.ref(model)
        # Optimizers that have stepped: with parameters of the model, and with none of them.
        self._stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._foreign: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._updates_at_rate_0 = 0
        self._backwards_since_update = self._steps_since_update = 0
        self._coverage_is_known = self._updated = False
        # Optimizers whose step() runs, outermost first: that of a subclass may call its base's.
        self._updating: list[torch.optim.Optimizer] = []
        self._backward_ran = self._backward_ran_in_training = False
        self._updated_with: list[_Gradient] = []
        self._placed: dict[str, torch.nn.Parameter] = {}
        self._steps_looked_at = self._backwards_looked_at = 0
        self._trained: list[tuple[str, torch.nn.Parameter, bool]] = []
        self._batches = (
            ReplicaBatches(state.require_initialized("a model"), bool(state.cfg.prescaled_batch))
            if state.cfg.ddp and ranks.dp_size() > 1
            else None
        )
        self._said: set[str] = set()
        self._hooks: list[RemovableHandle] = []
        self._clipping = ClippingWatch(self._check_clipping)
        self._parameters = MasteredParameters(self._sharded)
        self._audit = TrainingAudit()
        self._missing = MissingGradients()

    def open(self) -> None:
        """The model is the process's: one whose construction failed must not judge another."""
        self._hooks = [
            register_optimizer_step_pre_hook(self._before_update),
            register_optimizer_step_post_hook(self._after_update),
        ]
        self._clipping.open()
        self._parameters.open()

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._clipping.close()
        self._parameters.close()

    def _sharded(self) -> Sharded | None:
        model = self._model()
        return None if model is None else model.sharded

    def model_is_placed(self, model: Model) -> None:
        """From now on the parameters are where they stay."""
        self._placed = dict(model.named_parameters())
        if model.sharded is not None:
            self._trained = [(name, p, p.requires_grad) for name, p in self._placed.items()]

    # --- Steps ---

    def before_step(self) -> None:
        """A step begins: by the second one of a loop its optimizers have been seen."""
        model = self._model()
        if model is None:
            return
        check_published(model.sharded)
        if not torch.is_grad_enabled():
            return
        self._updating.clear()  # left by a step() that failed
        if (self._stepped or self._foreign) and not self._coverage_is_known:
            self._coverage_is_known = True
            self._check_coverage(model)
        self._check_cleared(model)
        self._check_trained()
        if self._steps_looked_at < _UPDATES and ranks.size() > 1:
            self._steps_looked_at += 1
            self._check_replaced(model)
        nobody_updates = not state.optimizers and not self._stepped
        if model.sharded is not None and nobody_updates and self._backwards_since_update:
            self._warn(
                f"a step begins, the one before ran a backward, and there is no optimizer: with "
                f"{kind_of_state()} only smp.DistributedOptimizer updates the model. Wrap the "
                "optimizer where it is made: optimizer = smp.DistributedOptimizer(optimizer)"
            )

    @property
    def wants_batches(self) -> bool:
        """``before_batch`` is to be called."""
        return self._batches is not None and not self._batches.done

    def before_batch(self, arguments: Mapping[str, Any]) -> None:
        """A step begins with these arguments, on a first rank of a pipeline."""
        model = self._model()
        trains = model is not None and model.training and torch.is_grad_enabled()
        if self._batches is not None and trains:
            self._batches.before_step(arguments)

    def after_step(self, backward_ran: bool) -> None:
        model = self._model()
        if backward_ran:
            self._backwards_since_update += 1
            self._backward_ran = True
            if model is not None:
                self._check_mode(model)
                if self._backwards_looked_at < _UPDATES and ranks.pp_size() > 1:
                    self._backwards_looked_at += 1
                    self._check_used_elsewhere(model)
        elif model is not None and model.training and torch.is_grad_enabled():
            self._steps_since_update += 1

    # --- Updates ---

    def before_distributed_update(self, optimizer: torch.optim.Optimizer) -> None:
        """``optimizer`` is to step masters, and will not if there are no gradients."""
        _refuse_in_step(optimizer)
        self._check_complete(optimizer)
        self._check_backward(optimizer)
        self._warn(self._missing.said_of(optimizer))

    def _before_update(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        _refuse_in_step(optimizer)
        model = self._model()
        if model is None or optimizer in self._foreign:
            return
        self._updating.append(optimizer)
        if optimizer in self._updating[:-1]:
            return
        wrapper = state.optimizers.wrapper_of(optimizer)
        if wrapper is None and optimizer not in self._stepped:
            if _parameters(optimizer).isdisjoint(model.parameters()):
                self._foreign.add(optimizer)
                return
            if model.sharded is not None:
                raise SMPStepError(_unwrapped(optimizer))
        if wrapper is not None and wrapper.masters is not None and not wrapper.masters.is_updating:
            kind = type(optimizer).__name__
            raise SMPStepError(
                f"{kind}.step() was called on the optimizer inside of smp.DistributedOptimizer: "
                "it would step 32-bit masters with gradients that are not unscaled and not "
                "clipped, and modules would not see the result. Call step() of what "
                f"smp.DistributedOptimizer({kind}(...)) returned"
            )
        self._stepped.add(optimizer)
        self._check_complete(optimizer)
        self._check_averaged(model, optimizer)
        self._check_backward(optimizer)
        self._backwards_since_update = self._steps_since_update = 0
        self._check_rates(optimizer)
        if not any(map(callable, (*args, *kwargs.values()))):  # a closure makes the gradients
            self._audit.before_update(model, optimizer)

    def _check_complete(self, optimizer: torch.optim.Optimizer) -> None:
        """Raises unless all steps of an accumulation were made."""
        model = self._model()
        if model is None or not model.replicas.is_accumulating:
            return
        passes = model.replicas.backward_passes_per_step
        raise SMPStepError(
            f"{type(optimizer).__name__}.step() was called before the last of "
            f"backward_passes_per_step={passes} steps: gradients are not averaged over replicas "
            "yet. Call it after that many steps of the model; to leave out an incomplete last "
            "window, call optimizer.zero_grad() before the next one"
        )

    def _check_backward(self, optimizer: torch.optim.Optimizer) -> None:
        if self._steps_since_update and not self._backwards_since_update:
            self._warn(
                f"{type(optimizer).__name__}.step() follows a step of the model in training mode "
                "that ran no backward: it changes nothing. Call model.backward(loss) inside the "
                "function decorated with smp.step, or model.eval() and torch.no_grad() around a "
                "step that only evaluates"
            )

    def _after_update(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if optimizer in self._updating:
            self._updating.remove(optimizer)
        if optimizer in self._updating or optimizer not in self._stepped:
            return
        self._audit.after_update(optimizer)
        self._updated = True
        if len(self._updated_with) == _UPDATES:
            return
        gradient = next((p.grad for p in _parameters(optimizer) if p.grad is not None), None)
        if gradient is not None:
            self._updated_with.append((weakref.ref(gradient), gradient._version))

    def _check_cleared(self, model: Model) -> None:
        """Warns if a step begins with the gradients that an update has used. With several
        optimizers that is ordinary: each clears its own."""
        if len(state.optimizers) > 1:
            return
        if model.sharded is not None:
            kept = self._updated and model.sharded.store.has_gradients
        else:
            kept = any(_is_kept(*gradient) for gradient in self._updated_with)
        self._updated = False
        if kept and model.training:
            self._warn(
                "a step begins, and the gradients that the last update used are still there: those "
                "of this step are added to them. Call optimizer.zero_grad() before the step's "
                "function"
            )

    def _check_trained(self) -> None:
        changed = [name for name, p, before in self._trained if p.requires_grad != before]
        if changed:
            raise SMPStepError(
                f"requires_grad of {listed(changed)} has changed since smp.DistributedModel, and "
                f"with {kind_of_state()} what is trained is decided there; freeze and unfreeze "
                "before, or give the parameters a group of their own, with a learning rate of 0 "
                "for as long as they are to stay"
            )

    def _check_replaced(self, model: Model) -> None:
        now = dict(model.named_parameters())
        names = {**self._placed, **now}
        other = [name for name in names if self._placed.get(name) is not now.get(name)]
        if self._placed and other:
            raise SMPStepError(
                f"{listed(other)} of the model came, went or were replaced after "
                "smp.DistributedModel: such parameters are on no other rank and in no average of "
                "gradients. Change the module before it is wrapped"
            )

    def _check_used_elsewhere(self, model: Model) -> None:
        found = model.ownership.used_elsewhere()
        if found:
            own, others = ranks.pp_rank(), ", ".join(sorted({str(one) for one in found.values()}))
            raise SMPStepError(
                f"a module of partition {own} computed with {listed(list(found))}, whose values "
                f"are on partition {others}, and NaN here: a module's parameters are used by its "
                "own forward, which runs where they are. Call the module in place of using its "
                "parameters, and forward in place of other methods, or put both on one partition "
                "with smp.set_partition"
            )

    def _check_mode(self, model: Model) -> None:
        if model.training:
            self._backward_ran_in_training = True
        elif self._backward_ran_in_training:
            self._warn(
                "a step ran a backward while the model is in evaluation mode, unlike steps before: "
                "dropout is off, and BatchNorm's statistics stay. Call model.train() after an "
                "evaluation"
            )

    def _check_averaged(self, model: Model, optimizer: torch.optim.Optimizer) -> None:
        """Raises unless the gradients of an update come from a step, which averages them."""
        if (
            self._backward_ran
            or ranks.dp_size() == 1
            or model.sharded is not None
            or model.replicas.join is not None
        ):
            return  # in join: a replica without a batch
        if any(parameter.grad is not None for parameter in _parameters(optimizer)):
            raise SMPStepError(
                f"{type(optimizer).__name__}.step() would update with gradients that were not "
                "averaged over the replicas, which then drift apart: forward and backward ran "
                "outside of a function decorated with smp.step. Put them into one, and call "
                "model.backward(loss) there"
            )

    def _check_clipping(self, name: str, given: list[torch.Tensor]) -> None:
        """torch's clipping function ``name`` is called with these parameters, or gradients."""
        model = self._model()
        if model is None:
            return
        own: set[torch.Tensor] = set(model.parameters())
        if model.sharded is not None:
            if not own.isdisjoint(given) or not may_clip(name, given):
                raise refusal(name, kind_of_state())
        elif ranks.mp_size() > 1 and name != "clip_grad_value_":
            own.update({p.grad for p in own if p.grad is not None})
            if not own.isdisjoint(given):
                does = "returns" if name == "get_total_norm" else "clips by"
                self._warn(
                    f"torch.nn.utils.{name} {does} the norm of this rank's gradients alone, so "
                    "that the parts of the model are scaled differently; call smp.clip_grad_norm_("
                    "model.parameters(), max_norm) on all ranks"
                )

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

    def _check_coverage(self, model: Model) -> None:
        """Warns of parameters that could be trained and are in no optimizer that steps."""
        covered: set[torch.Tensor] = set()
        others = set(self._stepped)
        for wrapper in state.optimizers:  # wrappers may step masters in their place
            covered.update(wrapper.states.given_parameters())
            others.discard(wrapper.optimizer)
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
                f"{listed(missing)}: it was made before smp.DistributedModel replaced modules "
                "(tensor parallelism) or made their values (delayed parameters). Make it from "
                "model.parameters() of the wrapped model"
            )
        else:
            self._warn(
                f"no optimizer that has stepped so far has {listed(missing)}: they stay as they "
                "are. Make the optimizer from all of model.parameters(), or freeze them with "
                "requires_grad_(False)"
            )

    def _warn(self, text: str | None) -> None:
        if text is not None and text not in self._said:
            self._said.add(text)
            log.warning(text)


def _parameters(optimizer: torch.optim.Optimizer) -> set[torch.Tensor]:
    return {parameter for group in optimizer.param_groups for parameter in group["params"]}


def _refuse_in_step(optimizer: torch.optim.Optimizer) -> None:
    if state.in_step:
        raise SMPStepError(
            f"{type(optimizer).__name__}.step() was called inside a function decorated with "
            "smp.step, which runs once for each microbatch, on the first rank of a pipeline; call "
            "it after the step, once, on all ranks"
        )


def _is_kept(remembered: weakref.ref[torch.Tensor], version: int) -> bool:
    """True if a gradient that an update used is as it was then."""
    gradient = remembered()
    return gradient is not None and gradient._version == version and bool(gradient.any())


def _unwrapped(optimizer: torch.optim.Optimizer) -> str:
    kind = type(optimizer).__name__
    return (
        f"{kind}.step() was called on the optimizer itself: with {kind_of_state()} the model's "
        "parameters are copies of 32-bit master parameters, which only smp.DistributedOptimizer "
        "updates, so that nothing would be learned. Wrap it where it is made: optimizer = "
        f"smp.DistributedOptimizer({kind}(model.parameters(), ...))"
    )

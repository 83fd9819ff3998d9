# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a partitioned model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._ranks import log, ranks
from smdistributed.modelparallel.torch._sharding.master_parameters import MasterParameters
from smdistributed.modelparallel.torch._sharding.old_names import OldNames
from smdistributed.modelparallel.torch._sharding.precision import make_scaler
from smdistributed.modelparallel.torch._sharding.update_scope import UpdateScope, check_scope
from smdistributed.modelparallel.torch._state.optimizer_states import OptimizerStates, states_of
from smdistributed.modelparallel.torch.amp import check_scaler
from smdistributed.modelparallel.torch.exceptions import (
    SMPStepError,
    SMPUnsupportedError,
    SMPValidationError,
)
from smdistributed.modelparallel.torch.ports import Optimizer, Sharded
from smdistributed.modelparallel.torch.state_mod import state

_SWAP_WEIGHTS = ("train", "eval")  # methods of schedule-free optimizers


def _of_wrapped(name: str, doc: str) -> property:
    """The wrapped optimizer's attribute ``name``."""
    return property(
        lambda self: getattr(self.optimizer, name),
        lambda self, value: setattr(self.optimizer, name, value),
        doc=doc,
    )


class DistributedOptimizer(OldNames, torch.optim.Optimizer):
    """Wraps ``optimizer``, made from all parameters of the model on every rank.

    Each rank steps the parameters that live there: those of other partitions never have a
    gradient. A rank that owns no parameter steps nothing. With sharded or 16-bit state the
    optimizer's groups hold 32-bit masters of this rank instead of the model's parameters.

    A model may have several, over different parameters: they share the loss scale, and gradients
    are measured and clipped by the norm of all of them. One over parameters of an earlier one takes
    its place.

    Args:
        optimizer: any ``torch.optim.Optimizer``; also reachable as ``.optimizer``, which is what
            learning-rate schedulers get.
        static_loss_scale: the factor of the loss in ``fp16``, if not dynamic.
        dynamic_loss_scale: halve it after an overflow, which skips the step on all ranks; double it
            after 1,000 steps without.
        dynamic_loss_args: ``init_scale`` (2**32), ``scale_factor`` (2), ``scale_window`` (1000),
            ``min_scale`` (1), ``delayed_shift`` (1), ``consecutive_hysteresis`` (False); one by one
            or as one dict ``dynamic_loss_args``. All of these are ignored without ``fp16``.
        update_scope: what the update of an element depends on, where ranks share parameters:
            ``"element"``: on its own gradient and state; ``"parameter"``: on the whole parameter;
            ``"model"``: on all. Unless given, the attribute ``update_scope`` of the optimizer or
            its class, or what is known of the class, or what a copy shows that steps a few small
            parameters.

    Raises:
        SMPNotInitializedError: before ``smp.init()``.
        SMPValidationError: ``optimizer`` is none, or a loss scale has arguments that are not known;
            with sharded or 16-bit state, parameters that are not the model's; a loss scale other
            than that of an optimizer before.
        SMPUnsupportedError: an optimizer that looks at more than a rank has.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        static_loss_scale: float = 1.0,
        dynamic_loss_scale: bool = False,
        update_scope: str | None = None,
        **dynamic_loss_args: Any,
    ) -> None:
        state.require_initialized("smp.DistributedOptimizer")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise SMPValidationError(
                f"smp.DistributedOptimizer got {type(optimizer).__name__}; it wraps a "
                "torch.optim.Optimizer"
            )
        self._declared_scope = update_scope
        self._scope = check_scope(optimizer, update_scope)
        # Not super().__init__: state and hooks are the wrapped optimizer's, see __getattr__.
        self.optimizer = optimizer
        self.first_closure_call_this_step = True
        if not state.cfg.fp16 and (dynamic_loss_scale or static_loss_scale != 1.0):
            log.warning(
                "smp.DistributedOptimizer got dynamic_loss_scale or static_loss_scale, which have "
                "no effect without fp16 in mp_parameters; leave them out"
            )
        self.scale_arguments = static_loss_scale, dynamic_loss_scale, dynamic_loss_args
        self._scaler = make_scaler(*self.scale_arguments)
        self._masters: MasterParameters | None = None
        self._successor = ""
        others = state.optimizers.beside(set(self.states.given_parameters()))
        if state.cfg.fp16:
            self._scaler = state.optimizers.scaler_for(self.scale_arguments, others) or self._scaler
        self._take_masters()
        state.optimizers.add(self)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """False: a GradScaler, which asks, then finds overflows itself, also for torch's fused
        optimizers. Raises SMPValidationError for one that would not tell the other ranks."""
        check_scaler()
        return False

    def _take_masters(self) -> None:
        model = state.model
        sharded = None if model is None else model.sharded
        if model is not None and sharded is not None and self._masters is None:
            movable = sharded.plan.cuts_parameters and not sharded.plan.on_demand
            if movable and ranks.tp_size() == 1 and self._scope is UpdateScope.PARAMETER:
                sharded = state.optimizers.keep_parameters_whole(model, self)
            self._masters = MasterParameters(sharded, self.optimizer)

    def move_masters(self, sharded: Sharded, saved: Mapping[str, Any]) -> None:
        """Steps the masters of another store of the same model, and goes on from ``saved``; for the
        library's own modules. Collective."""
        self.require_masters("masters").release()
        self._masters = MasterParameters(sharded, self.optimizer)
        self.states.load(saved)

    def give_way(self, other: Optimizer) -> None:
        """``other`` is over the same parameters; for the library's own modules."""
        self._successor = type(other.optimizer).__name__
        if self._masters is not None:
            self._masters.detach()

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not there yet, or being unpickled
            raise AttributeError(name)
        value = getattr(self.optimizer, name)
        if name in _SWAP_WEIGHTS and self._masters is not None and callable(value):
            return functools.partial(self._swap_weights, value)
        return value

    def _swap_weights(self, swap: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs ``swap``, which changes the masters without a gradient, and shows modules the
        change. All ranks call it."""
        result = swap(*args, **kwargs)
        self.publish_masters()
        return result

    def publish_masters(self) -> None:
        """Shows modules what a script has made of the masters, which are in ``param_groups`` with
        sharded or 16-bit state, by itself; ``step`` does so, too. All ranks call it. Without
        masters there is nothing to do."""
        if self._masters is not None:
            self._require_place("publish_masters")
            self._masters.sharded.store.publish()

    def _require_place(self, what: str) -> None:
        """Raises SMPStepError if another optimizer steps the parameters now."""
        if not self._successor:
            return
        kind = type(self.optimizer).__name__
        text = (
            f"{kind}.{what}() was called, and {self._successor}, which smp.DistributedOptimizer "
            "got later over some of the same parameters, has taken its place"
        )
        if self._masters is not None:
            raise SMPStepError(
                f"{text}; with sharded or 16-bit state a parameter has one optimizer"
            )
        log.warning(f"{text} in checkpoints: the state of {kind} is in none")

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self.optimizer!r})"

    param_groups: Any = _of_wrapped(
        "param_groups",
        "The groups of the wrapped optimizer; where there are masters, of flat masters ``[n]``.",
    )
    state: Any = _of_wrapped(
        "state", "The state of the wrapped optimizer, by parameter or flat master."
    )
    defaults: Any = _of_wrapped("defaults", "The defaults of the wrapped optimizer.")

    @property
    def overflow(self) -> bool:
        """True if the last step was skipped for an overflow; never without ``fp16``."""
        steps = state.optimizers.steps
        return self._masters is not None and steps is not None and steps.overflow

    @property
    def loss_scale(self) -> float:
        """The factor by which ``model.backward`` multiplies the loss; 1 without ``fp16``."""
        return self._scaler.scale

    @loss_scale.setter
    def loss_scale(self, value: float) -> None:
        self._scaler.scale = value

    @property
    def loss_scaler(self) -> _runtime.LossScaler:
        """The scaler behind ``loss_scale``."""
        return self._scaler

    @property
    def dynamic_loss_scale(self) -> bool:
        """True if the loss scale adapts to overflows."""
        return self._scaler.dynamic

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Steps the parameters of this rank. With sharded or 16-bit state all ranks call it.

        With sharded data parallelism the gradients are first clipped to the norm
        ``sdp_gradient_clipping``, unless that is 0. With such state gradients are always measured:
        raises SMPStepError on all ranks, naming a parameter, before any is stepped, for gradients
        that are not finite; in ``fp16`` they skip the step instead.
        """
        self._require_place("step")
        if self._masters is None:
            return self.optimizer.step() if closure is None else self.optimizer.step(closure)
        if state.model is not None:  # also for a step that fails
            state.model.checks.before_distributed_update(self.optimizer)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        steps = self._steps("step")
        with state.reports.optimizer_time():
            self._masters.step(steps)
        if self.overflow:
            state.reports.event("overflow", f"loss scale {self.loss_scale:g}")
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As PyTorch's, of parameters of the model that no optimizer of the job has so far. What is
        put into ``param_groups`` by other ways is taken up by the next ``step``, too."""
        self.optimizer.add_param_group(param_group)
        if self._masters is None:
            return
        try:
            self._masters.adopt()
        except SMPValidationError:
            self.optimizer.param_groups.pop()
            raise

    def _steps(self, what: str) -> _runtime.MixedPrecisionSteps:
        """Steps of all optimizers of the job together, where there are masters. Raises
        SMPNotInitializedError when the session has ended."""
        state.require_initialized(f"smp.DistributedOptimizer.{what}")
        self._require_place(what)
        assert state.optimizers.steps is not None
        return state.optimizers.steps

    def update_master_grads(self) -> None:
        """Divides the masters' gradients by the loss scale, unless that was done already."""
        if self._masters is not None:
            self._steps("update_master_grads").unscale()

    @property
    def _global_grad_norm(self) -> float | None:
        """Norm of the gradients of the last step, before clipping."""
        steps = state.optimizers.steps
        return None if self._masters is None or steps is None else steps.last_norm

    @property
    def masters(self) -> MasterParameters | None:
        """Masters, for the library's own modules; None where the model's parameters are stepped."""
        return self._masters

    def zero_grad(self, set_to_none: bool = True, **old_names: bool) -> None:
        """As PyTorch's; old scripts say ``set_grads_to_None``."""
        clear = old_names.pop("set_grads_to_None", set_to_none)
        if old_names:
            raise TypeError(f"zero_grad() got unexpected arguments {sorted(old_names)}")
        if self._masters is not None and not self._successor:
            self._masters.adopt()
        self.optimizer.zero_grad(set_to_none=clear)
        if state.model is not None:
            state.model.replicas.forget_accumulation()
        if self._masters is not None and not self._successor:
            state.optimizers.clear_gradients(self._masters)

    def clip_master_grads(self, max_norm: float, norm_type: float = 2) -> float:
        """Clips the masters' gradients by their norm over the whole model, and returns that norm;
        -1 if there was an overflow. All ranks call it, between the step's function and ``step``.

        Raises SMPUnsupportedError where there are no masters: without 16-bit or sharded state.
        """
        self._masters_to_clip("clip_master_grads", "clip_grad_norm_")
        return self._steps("clip_master_grads").clip(max_norm, float(norm_type))

    def clip_master_values(self, clip_value: float) -> None:
        """``torch.nn.utils.clip_grad_value_`` for the masters' gradients, of this optimizer. All
        ranks call it, between the step's function and ``step``. Without effect after an overflow.

        Raises SMPUnsupportedError where there are no masters.
        """
        masters = self._masters_to_clip("clip_master_values", "clip_grad_value_")
        self._steps("clip_master_values").unscale()
        for run in [] if self.overflow else masters.runs:
            if run.parameter.grad is not None:
                run.parameter.grad.clamp_(-float(clip_value), float(clip_value))

    def _masters_to_clip(self, what: str, instead: str) -> MasterParameters:
        if self._masters is None:
            raise SMPUnsupportedError(
                f"{what} clips the gradients of 32-bit masters, and this job has none; set fp16 or "
                f"bf16, or clip with torch.nn.utils.{instead}"
            )
        return self._masters

    # --- State dicts ---

    @property
    def states(self) -> OptimizerStates:
        """The state of this rank and of all, for checkpoints."""
        return states_of([self])

    def orig_state_dict(self) -> dict[str, Any]:
        """State dict of the wrapped optimizer on this rank."""
        return self.optimizer.state_dict()

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:
        """The state of this partition's parameters, and the key ``_smp_is_partial``.

        Where it is sharded it is this rank's part. With ``gather_if_shard`` all ranks call it, and
        the first replica gets the parts of its shard group, as a list under ``state``; behind them
        those of other tensor ranks, as far as they share state with it.
        """
        return self.states.local(gather_if_shard)

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, whole. Collective over the model-parallel and the shard
        group.

        Where there are 32-bit masters they are under ``_smp_masters``, by the parameters' numbers.
        """
        return self.states.whole()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a full or partial state dict.

        Partial ones of another partition of the model are gathered first, over the pipeline group.
        Where state is sharded all ranks call it. Raises SMPCheckpointError for what is no state of
        an optimizer, or that of another class or over other parameters.
        """
        self.states.load(state_dict)

    def detach(self) -> None:
        """The session has ended: holds nothing of it any more."""
        if self._masters is not None and not self._successor:
            self._masters.detach()

    def settle(self) -> None:
        """The partition was made: drops the state of parameters that it put elsewhere, and takes
        that of the others to their devices. Raises SMPUnsupportedError if it cut what the optimizer
        has to look at."""
        self._scope = check_scope(self.optimizer, self._declared_scope)
        self._take_masters()
        self.states.settle()

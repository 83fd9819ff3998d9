# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a partitioned model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.optimizer_states import OptimizerStates
from smdistributed.modelparallel.torch._session import log, ranks
from smdistributed.modelparallel.torch._sharding.loss_scale import make_scaler
from smdistributed.modelparallel.torch._sharding.master_parameters import (
    MasterParameters,
    needs_whole_parameters,
)
from smdistributed.modelparallel.torch.amp import check_scaler
from smdistributed.modelparallel.torch.exceptions import (
    SMPUnsupportedError,
    SMPValidationError,
)
from smdistributed.modelparallel.torch.state_mod import state


class DistributedOptimizer(torch.optim.Optimizer):
    """Wraps ``optimizer``, made from all parameters of the model on every rank.

    Each rank steps the parameters that live there: those of other partitions never have a
    gradient. A rank that owns no parameter steps nothing. With sharded or 16-bit state the
    optimizer's groups hold 32-bit masters of this rank instead of the model's parameters.

    Args:
        optimizer: any ``torch.optim.Optimizer``; also reachable as ``.optimizer``, which is what
            learning-rate schedulers get.
        static_loss_scale: the factor of the loss in ``fp16``, if not dynamic.
        dynamic_loss_scale: halve it after an overflow, which skips the step on all ranks; double it
            after 1,000 steps without.
        dynamic_loss_args: ``init_scale`` (2**32), ``scale_factor`` (2), ``scale_window`` (1000),
            ``min_scale`` (1), ``delayed_shift`` (1), ``consecutive_hysteresis`` (False); one by one
            or as one dict ``dynamic_loss_args``. All of these are ignored without ``fp16``.

    Raises:
        SMPNotInitializedError: before ``smp.init()``.
        SMPValidationError: ``optimizer`` is none, or a loss scale has arguments that are not known;
            with sharded or 16-bit state, parameters that are not the model's.
        SMPUnsupportedError: an optimizer that needs whole parameters, where they are cut.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        static_loss_scale: float = 1.0,
        dynamic_loss_scale: bool = False,
        **dynamic_loss_args: Any,
    ) -> None:
        state.require_initialized("smp.DistributedOptimizer")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise SMPValidationError(
                f"smp.DistributedOptimizer got {type(optimizer).__name__}; it wraps a "
                "torch.optim.Optimizer"
            )
        if isinstance(optimizer, torch.optim.LBFGS) and ranks.mp_size() > 1:
            raise SMPUnsupportedError(
                "LBFGS steps all parameters of a model as one vector, of which each rank has a "
                "part here; use an optimizer that steps each parameter by itself, such as AdamW, "
                "or pipeline and tensor parallel degrees of 1"
            )
        # Not super().__init__: state and hooks are the wrapped optimizer's, see __getattr__.
        self.optimizer = optimizer
        self.first_closure_call_this_step = True
        if not state.cfg.fp16 and (dynamic_loss_scale or static_loss_scale != 1.0):
            log.warning(
                "smp.DistributedOptimizer got dynamic_loss_scale or static_loss_scale, which have "
                "no effect without fp16 in mp_parameters; leave them out"
            )
        self._scaler = make_scaler(static_loss_scale, dynamic_loss_scale, dynamic_loss_args)
        self._masters: MasterParameters | None = None
        state.optimizer = self
        self._take_masters()

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
            if movable and ranks.tp_size() == 1 and needs_whole_parameters(self.optimizer):
                sharded = model.keep_parameters_whole()
            self._masters = MasterParameters(sharded, self.optimizer, self._scaler)

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not there yet, or being unpickled
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self.optimizer!r})"

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of the wrapped optimizer; where there are masters, of flat masters ``[n]``."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        """The state of the wrapped optimizer, by parameter or flat master."""
        return self.optimizer.state

    @state.setter
    def state(self, value: Any) -> None:
        self.optimizer.state = value

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the wrapped optimizer."""
        return self.optimizer.defaults

    @defaults.setter
    def defaults(self, value: dict[str, Any]) -> None:
        self.optimizer.defaults = value

    @property
    def overflow(self) -> bool:
        """Whether the last step was skipped for an overflow; never without ``fp16``."""
        return self._masters is not None and self._masters.overflow

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
        """Whether the loss scale adapts to overflows."""
        return self._scaler.dynamic

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Steps the parameters of this rank. With sharded or 16-bit state all ranks call it.

        With sharded data parallelism the gradients are first clipped to the norm
        ``sdp_gradient_clipping``, unless that is 0. With such state gradients are always measured:
        raises SMPStepError on all ranks, naming a parameter, before any is stepped, for gradients
        that are not finite; in ``fp16`` they skip the step instead.
        """
        if self._masters is None:
            return self.optimizer.step() if closure is None else self.optimizer.step(closure)
        if state.model is not None:  # whatever comes of it
            state.model.checks.before_distributed_update(self.optimizer)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        state.require_initialized("smp.DistributedOptimizer.step")
        with state.reports.optimizer_time():
            self._masters.step()
        if self.overflow:
            state.reports.event("overflow", f"loss scale {self.loss_scale:g}")
        return loss

    def show_gradients(self) -> None:
        """The masters get the gradients that a step has averaged; the model calls it."""
        if self._masters is not None:
            self._masters.steps.begin()

    def backward(self, loss: torch.Tensor, update_master_grads: bool = True) -> None:
        """``model.backward(loss)``, under the name that old scripts use."""
        assert state.model is not None
        state.model.backward(loss)

    def update_master_grads(self) -> None:
        """Divides the masters' gradients by the loss scale, unless that was done already."""
        if self._masters is not None:
            self._masters.steps.unscale()

    def reload_model_params(self) -> None:
        """Takes over what a script wrote into the model's parameters, for instance of a checkpoint
        without optimizer state. Collective where state is sharded.

        Masters whose parameters still are what they were rounded to keep their 32 bits. Without
        effect where no masters are, or where parameters are gathered for use: a state dict goes to
        the masters itself.
        """
        sharded = None if state.model is None else state.model.sharded
        if self._masters is None or sharded is None or sharded.plan.on_demand:
            return
        held = dict(zip(sharded.names, sharded.parameters, strict=True))
        sharded.store.accept_writes()
        sharded.assign(
            {
                name: held[name].detach()
                for name, master in sharded.whole_values()
                if not torch.equal(master.to(held[name].dtype), held[name].detach().cpu())
            }
        )

    def init_master_params(self) -> None:
        """``reload_model_params``, under the name for its first call: the masters are there."""
        self.reload_model_params()

    @property
    def _global_grad_norm(self) -> float | None:
        """Of the gradients of the last step, before clipping."""
        return None if self._masters is None else self._masters.last_norm

    @property
    def fp32_partitioned_groups_flat(self) -> list[torch.Tensor]:
        """The masters of this rank, one flat tensor for each group of the optimizer."""
        return self._require_masters("fp32_partitioned_groups_flat").core.flat_groups()

    @property
    def fp16_groups(self) -> list[list[torch.Tensor]]:
        """The model's parameters by group of the optimizer."""
        return self._require_masters("fp16_groups").original_groups

    @property
    def ds_param_shard_group(self) -> Any:
        """The c10d group over which parameters are sharded."""
        self._require_masters("ds_param_shard_group")
        assert state.model is not None and state.model.sharded is not None
        return state.model.sharded.groups.shards

    def _require_masters(self, name: str) -> MasterParameters:
        if self._masters is None:
            raise AttributeError(f"the optimizer has no {name}: no state is sharded or 16-bit")
        return self._masters

    def zero_grad(self, set_to_none: bool = True, **old_names: bool) -> None:
        """As PyTorch's; old scripts say ``set_grads_to_None``."""
        clear = old_names.pop("set_grads_to_None", set_to_none)
        if old_names:
            raise TypeError(f"zero_grad() got unexpected arguments {sorted(old_names)}")
        self.optimizer.zero_grad(set_to_none=clear)
        if self._masters is not None:
            assert state.model is not None and state.model.sharded is not None
            state.model.sharded.store.zero_gradients()
            self._masters.steps.begin()

    def clip_master_grads(self, max_norm: float, norm_type: float = 2) -> float:
        """Clips the masters' gradients by their norm over the whole model, and returns that norm;
        -1 if there was an overflow. All ranks call it, between the step's function and ``step``.

        Raises SMPUnsupportedError where there are no masters: without 16-bit or sharded state.
        """
        if self._masters is None:
            raise SMPUnsupportedError(
                "clip_master_grads clips the gradients of 32-bit masters, and this job has none; "
                "set fp16 or bf16, or clip with torch.nn.utils.clip_grad_norm_"
            )
        return self._masters.steps.clip(max_norm, float(norm_type))

    # --- State dicts ---

    @property
    def states(self) -> OptimizerStates:
        """The state of this rank and of all, for checkpoints."""
        return OptimizerStates(self.optimizer, self._masters, self._scaler)

    def orig_state_dict(self) -> dict[str, Any]:
        """What the wrapped optimizer says of this rank."""
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
        if self._masters is not None:
            self._masters.detach()

    def settle(self) -> None:
        """The partition was made: drops the state of parameters that it put elsewhere, and takes
        that of the others to their devices."""
        self._take_masters()
        self.states.settle()

# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a partitioned model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.saved_parts import PARTIAL_KEY
from smdistributed.modelparallel.torch._checkpoint.shard_states import (
    check_same_model,
    is_shared,
    only,
    part_of_plain,
    part_of_rank,
    plain_of_parts,
    restore,
)
from smdistributed.modelparallel.torch._checkpoint.state_fit import (
    KIND_KEY,
    NAMES_KEY,
    OptimizerState,
    Shapes,
    check_is_state,
    check_optimizer,
    state_of_parts,
    state_of_plain,
)
from smdistributed.modelparallel.torch._checkpoint.tensor_states import whole_shapes
from smdistributed.modelparallel.torch._session import comm, log, ranks
from smdistributed.modelparallel.torch._sharding.master_parameters import (
    MasterParameters,
    needs_whole_parameters,
)
from smdistributed.modelparallel.torch._sharding.mixed_precision_steps import MixedPrecisionSteps
from smdistributed.modelparallel.torch.exceptions import (
    SMPUnsupportedError,
    SMPValidationError,
)
from smdistributed.modelparallel.torch.nn.parameter_slices import (
    distribution_axis,
    slice_of,
    whole_of,
)
from smdistributed.modelparallel.torch.state_mod import state

_MASTERS_KEY = "_smp_masters"


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
        self._precision = MixedPrecisionSteps(
            static_loss_scale, dynamic_loss_scale, dynamic_loss_args
        )
        self._masters: MasterParameters | None = None
        state.optimizer = self
        self._take_masters()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """False: a GradScaler, which asks, then finds overflows itself, also for torch's fused
        optimizers. Raises SMPValidationError for one that would not tell the other ranks."""
        model = state.model
        alone = ranks.mp_size() == 1 and (model is None or model.sharded is None)
        if not (alone or state.is_scaling):
            raise SMPValidationError(
                "torch's GradScaler skips an update on the rank that sees an overflow, and the "
                "other ranks of this model would go on; use smp.amp.GradScaler"
            )
        return False

    def _take_masters(self) -> None:
        model = state.model
        sharded = None if model is None else model.sharded
        if model is not None and sharded is not None and self._masters is None:
            movable = sharded.cuts_parameters and not sharded.plan.on_demand
            if movable and ranks.tp_size() == 1 and needs_whole_parameters(self.optimizer):
                sharded = model.keep_parameters_whole()
            self._masters = MasterParameters(sharded, self.optimizer)
            self._precision.attach(sharded, self._masters)

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
        return self._precision.overflow

    @property
    def loss_scale(self) -> float:
        """The factor by which ``model.backward`` multiplies the loss; 1 without ``fp16``."""
        return self._precision.scale

    @loss_scale.setter
    def loss_scale(self, value: float) -> None:
        self._precision.scaler.scale = value

    @property
    def loss_scaler(self) -> _runtime.LossScaler:
        """The scaler behind ``loss_scale``."""
        return self._precision.scaler

    @property
    def dynamic_loss_scale(self) -> bool:
        """Whether the loss scale adapts to overflows."""
        return self._precision.scaler.dynamic

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
        self._precision.step(self.optimizer)
        return loss

    def show_gradients(self) -> None:
        """The masters get the gradients that a step has averaged; the model calls it."""
        if self._masters is not None:
            self._masters.show_gradients(True)
            self._precision.begin()

    def backward(self, loss: torch.Tensor, update_master_grads: bool = True) -> None:
        """``model.backward(loss)``, under the name that old scripts use."""
        assert state.model is not None
        state.model.backward(loss)

    def update_master_grads(self) -> None:
        """Divides the masters' gradients by the loss scale, unless that was done already."""
        if self._masters is not None:
            self._precision.unscale()

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
        return self._precision.last_norm

    @property
    def fp32_partitioned_groups_flat(self) -> list[torch.Tensor]:
        """The masters of this rank, one flat tensor for each group of the optimizer."""
        return self._require_masters("fp32_partitioned_groups_flat").flat_groups()

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
            state.model.sharded.zero_gradients()
            self._masters.show_gradients(False)
            self._precision.begin()

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
        return self._precision.clip(max_norm, norm_type)

    # --- State dicts ---

    def orig_state_dict(self) -> dict[str, Any]:
        """What the wrapped optimizer says of this rank."""
        return self.optimizer.state_dict()

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:
        """The state of this partition's parameters, and the key ``_smp_is_partial``.

        Where it is sharded it is this rank's part. With ``gather_if_shard`` all ranks call it, and
        the first replica gets the parts of its shard group, as a list under ``state``; behind them
        those of other tensor ranks, as far as they share state with it.
        """
        if self._masters is not None:
            own = self.shard_part()
            if not gather_if_shard or not is_shared(own):
                return {**own, PARTIAL_KEY: True}
            parts = self._parts_of_group()
            return {"state": parts if ranks.rdp_rank() == 0 else [own], PARTIAL_KEY: True}
        return {**self._only_local(self.optimizer.state_dict()), PARTIAL_KEY: True}

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, whole. Collective over the model-parallel and the shard
        group.

        Where there are 32-bit masters they are under ``_smp_masters``, by the parameters' numbers.
        """
        if self._masters is not None:
            return self._whole_state()
        own = self._resized(self.optimizer.state_dict(), self._parameters(), whole_of)
        if ranks.pp_size() == 1:
            return own
        return merged_states(comm.allgather(self._only_local(own), comm.CommGroup.PP_GROUP))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a full or partial state dict.

        Partial ones of another partition of the model are gathered first, over the pipeline group.
        Where state is sharded all ranks call it. Raises SMPCheckpointError for what is no state of
        an optimizer, or that of another class or over other parameters.
        """
        where = "the state dict"
        if self._masters is not None:
            self._load_flat(state_dict, where)
            return
        check_is_state(state_dict, where)
        partial = bool(state_dict.get(PARTIAL_KEY, False))
        given = {k: v for k, v in state_dict.items() if k not in (_MASTERS_KEY, PARTIAL_KEY)}
        if partial and ranks.pp_size() > 1:
            given = merged_states(comm.allgather(given, comm.CommGroup.PP_GROUP))
        self.check_plain(given, where, whole=not partial)
        given = {k: v for k, v in given.items() if k not in (NAMES_KEY, KIND_KEY)}
        if not partial:
            given = self._resized(given, self._parameters(), slice_of)
        self.load_slices(given)

    def load_slices(self, state_dict: Mapping[str, Any]) -> None:
        """Loads the state of all partitions, of distributed modules this rank's slices."""
        self.optimizer.load_state_dict(self._only_local(state_dict))

    @staticmethod
    def _resized(
        state_dict: dict[str, Any],
        parameters: Sequence[torch.Tensor],
        size: Callable[[torch.Tensor, int], torch.Tensor],
    ) -> dict[str, Any]:
        """With whole values or slices of what is shaped like a parameter that tensor-parallel
        ranks hold slices of. Collective over them if ``size`` is."""
        numbered = {number: axis for number, parameter in enumerate(parameters)
                    if (axis := distribution_axis(parameter)) is not None}  # fmt: skip
        if not numbered:
            return state_dict
        resized = dict(state_dict["state"])
        for number in sorted(resized.keys() & numbered.keys()):
            dims = parameters[number].dim()
            resized[number] = {
                field: size(value, numbered[number])
                if isinstance(value, torch.Tensor) and value.dim() == dims
                else value
                for field, value in resized[number].items()
            }
        masters = dict(state_dict.get(_MASTERS_KEY, {}))
        for number in sorted(masters.keys() & numbered.keys()):
            masters[number] = size(masters[number], numbered[number])
        return {**state_dict, "state": resized, **({_MASTERS_KEY: masters} if masters else {})}

    # --- Where state is sharded or 16-bit ---

    def shard_part(self) -> dict[str, Any]:
        """What this rank owns of masters and state; see shard_states."""
        assert state.model is not None and state.model.sharded is not None
        part = part_of_rank(state.model.sharded, self._masters)
        scaler = list(self._precision.scaler.state())
        return {**part, "loss_scaler": scaler, "optimizer": self.kind}

    def restore_parts(self, parts: Sequence[Mapping[str, Any]], where: str) -> None:
        """Masters, state and loss scale from the parts of any job. Collective."""
        assert state.model is not None and state.model.sharded is not None
        own_parts = [dict(part) for part in parts]
        check_same_model(state.model.sharded, self._masters, own_parts, where)
        check_optimizer(state_of_parts(own_parts), self.described(), where)
        restore(state.model.sharded, self._masters, own_parts, where)
        self.restore_loss_scale(parts[0].get("loss_scaler"))

    def restore_loss_scale(self, saved: Sequence[Any] | None) -> None:
        """What a part says of the loss scaler; without ``fp16`` there is none to restore."""
        if saved is not None and state.cfg.fp16:
            self._precision.scaler.restore((saved[0], saved[1], saved[2]))

    def _parts_of_group(self) -> list[dict[str, Any]]:
        """Of all ranks that share state with this one. Collective."""
        assert state.model is not None and state.model.sharded is not None
        sharded = state.model.sharded
        parts: list[Any] = [self.shard_part()]
        if sharded.groups.control is not None:
            parts = [None] * sharded.plan.degree
            dist.all_gather_object(parts, self.shard_part(), group=sharded.groups.control)
        spread = set(sharded.spread_names)
        if ranks.tp_size() > 1 and sharded.plan.own_degree != sharded.plan.degree:
            there = comm.allgather([only(part, spread) for part in parts], comm.CommGroup.TP_GROUP)
            del there[ranks.tp_rank()]
            parts += [part for of_peer in there for part in of_peer]
        return parts

    def _whole_state(self) -> dict[str, Any]:
        parts = self._parts_of_group()
        if ranks.pp_size() > 1:
            parts = [part for group in comm.allgather(parts, comm.CommGroup.PP_GROUP)
                     for part in group]  # fmt: skip
        names = [name for group in parts[0]["param_groups"] for name in group["names"]]
        masters, whole = plain_of_parts(parts, names)
        numbers = {name: number for number, name in enumerate(names)}
        whole[_MASTERS_KEY] = {numbers[k]: v for k, v in masters.items() if k in numbers}
        return self._resized(whole, self._original_parameters(), whole_of)

    def _load_flat(self, state_dict: Mapping[str, Any], where: str) -> None:
        if "parameters" in state_dict:
            self.restore_parts([state_dict], where)
            return
        if isinstance(state_dict.get("state"), list):
            self.restore_parts(state_dict["state"], where)
            return
        self.check_plain(state_dict, where, whole=True)
        own = self._resized(dict(state_dict), self._original_parameters(), slice_of)
        self.restore_parts([self.plain_part(own)], where)

    def plain_part(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """A part of what an optimizer over whole parameters saved."""
        assert state.model is not None and self._masters is not None
        sharded = state.model.sharded
        assert sharded is not None
        own = [name for group in self._masters.settings_of_groups() for name in group["names"]]
        names = list(saved.get(NAMES_KEY, own))
        shapes = dict(zip(sharded.names, sharded.shapes, strict=True))
        part = part_of_plain(saved, names, shapes)
        for number, master in saved.get(_MASTERS_KEY, {}).items():
            part["parameters"][names[number]]["master"] = master.reshape(-1)
        return {**part, "optimizer": saved.get(KIND_KEY, "")}

    def part_for_checkpoint(self) -> dict[str, Any]:
        """``local_state_dict``, and the names of the parameters and the optimizer's class, so that
        another job can tell whether they are its own."""
        names = self.parameter_names()
        return {**self.local_state_dict(), NAMES_KEY: names, KIND_KEY: self.kind}

    def load_parts(self, parts: Sequence[Mapping[str, Any]], folder: Path) -> None:
        """Loads what all partitions of a checkpoint saved, whatever their number. Where state is
        sharded all ranks call it.

        Raises SMPCheckpointError if they are of another optimizer, or one over other parameters.
        """
        saved = merged_states(parts)
        self.check_plain(saved, str(folder))
        if self._masters is not None:
            part = self.plain_part(saved)
            if "loss_scaler" in saved:
                part["loss_scaler"] = saved["loss_scaler"]
            self.restore_parts([part], str(folder))
            return
        saved = {k: v for k, v in saved.items() if k in ("state", "param_groups")}
        self.load_slices(saved)

    # --- Whether state is this optimizer's; see state_fit ---

    @property
    def kind(self) -> str:
        """The name of the wrapped optimizer's class."""
        return type(self.optimizer).__name__

    def described(self, whole: bool = False) -> OptimizerState:
        """What can be compared of the wrapped optimizer; shapes of slices, or of whole values."""
        names, parameters = self.parameter_names(), self.given_parameters()
        model = state.model
        local = set(parameters)
        if model is not None and model.partitioned:  # others hold one element here
            local &= set(model.local_parameters())
        shapes: Shapes = {name: tuple(parameter.shape)
                          for name, parameter in zip(names, parameters, strict=True)
                          if name and parameter in local}  # fmt: skip
        if whole:
            axes = {name: distribution_axis(p) for name, p in zip(names, parameters, strict=True)}
            cut = {name: axis for name, axis in axes.items() if axis is not None}
            shapes = whole_shapes(shapes, cut)
        return OptimizerState(
            kind=self.kind,
            groups=[[names[number] for number in group] for group in self.groups_by_number()],
            settings=[self.optimizer.defaults.keys()],
            fields={key for held in self.optimizer.state.values() for key in held},
            shapes=shapes,
        )

    def check_plain(
        self,
        saved: Mapping[str, Any],
        where: str,
        *,
        whole: bool = False,
        shapes: Shapes | None = None,
    ) -> None:
        """Raises SMPCheckpointError unless this optimizer can go on from ``saved``: the state of
        one over whole parameters or, without ``whole``, this rank's slices of them. ``shapes`` are
        those of its parameters, as far as known.
        """
        own = self.described(whole)
        check_optimizer(state_of_plain(saved, own, where, shapes), own, where)

    def groups_by_number(self) -> list[list[int]]:
        """The numbers of the parameters in each group."""
        sizes = [len(group["params"]) for group in self.param_groups]
        if self._masters is not None:
            sizes = [len(group) for group in self._masters.original_groups]
        ends = list(itertools.accumulate(sizes))
        return [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]

    def settle(self) -> None:
        """The partition was made: drops the state of parameters that it put elsewhere."""
        self._take_masters()
        if self._masters is not None:
            return
        kept = self._only_local(self.optimizer.state_dict())["state"]
        for index, parameter in enumerate(self._parameters()):
            if index not in kept:
                self.optimizer.state.pop(parameter, None)

    def _original_parameters(self) -> list[torch.Tensor]:
        """The model's parameters, in whose place masters are stepped."""
        assert self._masters is not None
        return [parameter for group in self._masters.original_groups for parameter in group]

    def _parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def given_parameters(self) -> list[torch.Tensor]:
        """What the script made the wrapped optimizer from, in its order."""
        return self._parameters() if self._masters is None else self._original_parameters()

    def parameter_names(self) -> list[str]:
        named: dict[torch.Tensor, str] = {}
        if state.model is not None:
            named = {parameter: name for name, parameter in state.model.named_parameters()}
        return [named.get(parameter, "") for parameter in self.given_parameters()]

    def _only_local(self, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Without the state of other partitions' parameters, which this rank never steps.

        It is there if an optimizer makes its state at once, or was loaded before the partition.
        """
        if state.model is None or not state.model.partitioned:
            return dict(state_dict)
        local = set(state.model.local_parameters())
        numbers = {index for index, p in enumerate(self._parameters()) if p in local}
        kept = {index: value for index, value in state_dict["state"].items() if index in numbers}
        return {**state_dict, "state": kept}


def merged_states(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """One optimizer state from those of all partitions."""
    parts = list(parts)
    merged = {**parts[0], "state": {}}
    for part in parts:
        merged["state"].update(part["state"])
    return merged

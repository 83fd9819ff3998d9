# SPDX-License-Identifier: Apache-2.0
"""State of a distributed optimizer: this rank's, that of all ranks, and back from any of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch._slices.parameter_slices import (
    distribution_axis,
    slice_of,
    whole_of,
)
from smdistributed.modelparallel.torch._state.joint_states import (
    joint_state_dict,
    load_joint,
    merged_states,
    move_state,
    state_dict_of,
)
from smdistributed.modelparallel.torch._state.lazy_values import LazyValues
from smdistributed.modelparallel.torch._state.shard_states import (
    check_same_model,
    is_shared,
    only,
    part_for_file,
    part_of_rank,
    restore_shards,
)
from smdistributed.modelparallel.torch._state.state_fit import (
    KIND_KEY,
    NAMES_KEY,
    PARTIAL_KEY,
    UNNAMED,
    OptimizerState,
    Shapes,
    check_is_state,
    check_optimizer,
    described_class,
    known_shapes,
    state_of,
)
from smdistributed.modelparallel.torch._state.tensor_states import whole_shapes
from smdistributed.modelparallel.torch.ports import Masters, Optimizer, Sharded
from smdistributed.modelparallel.torch.state_mod import state

_MASTERS_KEY = "_smp_masters"


class HasStates(Protocol):
    """A distributed optimizer, or all of a job."""

    @property
    def states(self) -> OptimizerStates:
        """As they are now."""


class JobStates:
    """All optimizers of the job, of which there is at least one."""

    @property
    def states(self) -> OptimizerStates:
        """As they are now."""
        return states_of(list(state.optimizers))


def states_of(optimizers: Sequence[Optimizer]) -> OptimizerStates:
    """State of ``optimizers``, at least one, as of one."""
    masters = [one.masters for one in optimizers if one.masters is not None]
    wrapped = [one.optimizer for one in optimizers]
    return OptimizerStates(wrapped, masters, optimizers[0].loss_scaler)


class OptimizerStates:
    """State of the wrapped ``optimizers``, as of one whose groups are those of all, one behind the
    other; ``masters`` of each where state is sharded or 16-bit, else none."""

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        masters: Sequence[Masters],
        scaler: _runtime.LossScaler,
    ) -> None:
        self.masters = masters
        self._optimizers, self._masters, self._scaler = optimizers, masters, scaler

    def local(self, gather_if_shard: bool = True) -> dict[str, Any]:
        """This rank's; see ``DistributedOptimizer.local_state_dict``."""
        if self._masters:
            own = self.shard_part()
            if not gather_if_shard or not is_shared(own):
                return {**own, PARTIAL_KEY: True}
            parts = self._parts_of_group()
            return {"state": parts if ranks.rdp_rank() == 0 else [own], PARTIAL_KEY: True}
        return {**self._only_local(self.state_dict()), PARTIAL_KEY: True}

    def whole(self) -> dict[str, Any]:
        """State of all ranks; see ``DistributedOptimizer.state_dict``."""
        if self._masters:
            return self._whole_state()
        own = self._resized(self.state_dict(), self.given_parameters(), whole_of)
        if ranks.pp_size() == 1:
            return own
        return merged_states(comm.allgather(self._only_local(own), comm.CommGroup.PP_GROUP))

    def load(self, state_dict: Mapping[str, Any]) -> None:
        """Any of these; see ``DistributedOptimizer.load_state_dict``."""
        where = "the state dict"
        if self._masters:
            self._load_sharded(state_dict, where)
            return
        check_is_state(state_dict, where)
        partial = bool(state_dict.get(PARTIAL_KEY, False))
        given = {k: v for k, v in state_dict.items() if k not in (_MASTERS_KEY, PARTIAL_KEY)}
        if partial and ranks.pp_size() > 1:
            given = merged_states(comm.allgather(given, comm.CommGroup.PP_GROUP))
        self.check_plain(given, where, whole=not partial)
        given = {k: v for k, v in given.items() if k not in (NAMES_KEY, KIND_KEY)}
        if not partial:
            given = self._resized(given, self.given_parameters(), slice_of)
        self.load_slices(given)

    def load_slices(self, state_dict: Mapping[str, Any]) -> None:
        """Loads the state of all partitions, of distributed modules this rank's slices."""
        load_joint(self._optimizers, self._only_local(state_dict))

    def state_dict(self) -> dict[str, Any]:
        """State dict of the wrapped optimizers on this rank."""
        return joint_state_dict(self._optimizers)

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

    @property
    def _sharded(self) -> Sharded:
        assert state.model is not None and state.model.sharded is not None
        return state.model.sharded

    def shard_part(self) -> dict[str, Any]:
        """Masters and state that this rank owns; see shard_states."""
        return self._named(self._own(part_of_rank(self._sharded, self._masters)))

    def _own(self, part: dict[str, Any]) -> dict[str, Any]:
        """Without the parameters that other optimizers of the job step."""
        others = {p for one in state.optimizers for p in one.states.given_parameters()}
        others.difference_update(self.given_parameters())
        if not others:
            return part
        names = {name for name, parameter in
                 zip(self._sharded.names, self._sharded.parameters, strict=True)
                 if parameter not in others}  # fmt: skip
        return {**only(part, names), "of_optimizer": True}

    def shard_part_for_checkpoint(self) -> dict[str, Any]:
        """The same, laid out as in files. Collective over the shard group."""
        return self._named(part_for_file(self._sharded, self._masters))

    def _named(self, part: dict[str, Any]) -> dict[str, Any]:
        scaler = list(self._scaler.state())
        return {**part, "loss_scaler": scaler, "optimizer": self.kind}

    def restore(self, saved: _runtime.SavedState) -> None:
        """Goes on from ``saved``: masters, state and loss scale. Collective where state is sharded.

        Raises SMPCheckpointError where masters are of another model or optimizer; without masters
        the caller has compared.
        """
        if not self._masters:
            names = [name or f"{UNNAMED}{number}"
                     for number, name in enumerate(self.parameter_names())]  # fmt: skip
            self.load_slices(state_dict_of(saved, names))
            return
        check_same_model(self._sharded, self._masters, saved)
        check_optimizer(state_of(saved), self.described(), saved.where)
        restore_shards(self._sharded, self._masters, saved)
        self.restore_loss_scale(saved.loss_scale)

    def restore_loss_scale(self, saved: tuple[float, int, int] | None) -> None:
        """Takes the state of a loss scaler; without ``fp16`` there is none to restore."""
        if saved is not None and state.cfg.fp16:
            self._scaler.restore(saved)

    def _parts_of_group(self) -> list[dict[str, Any]]:
        """Parts of all ranks that share state with this one. Collective."""
        sharded = self._sharded
        parts: list[Any] = [self.shard_part()]
        if sharded.groups.control is not None:
            parts = comm.allgather_among(
                "the optimizer's state", parts[0], "shard control", sharded.groups.ranks
            )
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
        saved = _runtime.SavedState("the state of all ranks")
        for part in parts:
            saved.add_optimizer(part)
        names = [name for _, group in saved.groups for name in group]
        whole = state_dict_of(saved, names)
        numbers = {name: number for number, name in enumerate(names)}
        masters = saved.whole_masters()
        whole[_MASTERS_KEY] = {numbers[k]: v for k, v in masters.items() if k in numbers}
        return self._resized(whole, self.given_parameters(), whole_of)

    def _load_sharded(self, state_dict: Mapping[str, Any], where: str) -> None:
        own = state_dict
        if "parameters" not in state_dict and not isinstance(state_dict.get("state"), list):
            self.check_plain(state_dict, where, whole=True)
            own = self._resized(dict(state_dict), self.given_parameters(), slice_of)
        self.restore(self._read(own, where, self.described()))

    def _read(
        self, state_dict: Mapping[str, Any], where: str, own: OptimizerState
    ) -> _runtime.SavedState:
        saved = _runtime.SavedState(where)
        saved.add_optimizer(state_dict, self.parameter_names(), known_shapes(own.shapes))
        return saved

    def part_for_checkpoint(self) -> dict[str, Any]:
        """Returns what local() does, with the names of the parameters and the optimizer's class, so
        that another job can tell whether they are its own."""
        names = self.parameter_names()
        return {**self.local(), NAMES_KEY: names, KIND_KEY: self.kind}

    # --- Whether state is this optimizer's; see state_fit ---

    @property
    def kind(self) -> str:
        """The name of the wrapped optimizer's class; of several in order."""
        return " + ".join(type(optimizer).__name__ for optimizer in self._optimizers)

    def described(self, whole: bool = False) -> OptimizerState:
        """The wrapped optimizer as it is compared; shapes of slices, or of whole values."""
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
            groups=[[names[number] or f"{UNNAMED}{number}" for number in group]
                    for group in self.groups_by_number()],
            settings=[optimizer.defaults.keys() for optimizer in self._optimizers],
            fields={key for optimizer in self._optimizers
                    for held in optimizer.state.values() for key in held},
            shapes=shapes,
        )  # fmt: skip

    def described_groups(self) -> list[OptimizerState]:
        """What ``check_kind`` compares, of the optimizer that has each group."""
        return [described_class(optimizer) for optimizer in self._optimizers
                for _ in optimizer.param_groups]  # fmt: skip

    def check_plain(self, saved: Mapping[str, Any], where: str, *, whole: bool = False) -> None:
        """Raises SMPCheckpointError unless this optimizer can go on from ``saved``: the state of
        one over whole parameters or, without ``whole``, this rank's slices of them."""
        own = self.described(whole)
        check_is_state(saved, where)
        check_optimizer(state_of(self._read(saved, where, own), {}), own, where)

    def settings(self) -> list[dict[str, Any]]:
        """Settings of each group."""
        return [{key: value for key, value in group.items() if key != "params"}
                for optimizer in self._optimizers for group in optimizer.param_groups]  # fmt: skip

    def take_settings(self, settings: Sequence[Mapping[str, Any]]) -> None:
        """Takes settings of each group, and drops all state."""
        numbers = self.groups_by_number()
        groups = iter(settings)
        for one in self._masters:
            one.take_settings([dict(next(groups)) for _ in one.original_groups])
        if not self._masters:
            named = [{**group, "params": own}
                     for group, own in zip(settings, numbers, strict=True)]  # fmt: skip
            load_joint(self._optimizers, {"state": {}, "param_groups": named})

    def take_state(self, kept: Mapping[str, Mapping[str, Any]]) -> None:
        """Takes what was kept for each parameter, by name, in the place of all state: of
        distributed modules this rank's slices. Looks at that of its stage, one after the other."""
        self.take_settings(self.settings())
        named = list(zip(self.given_parameters(), self.parameter_names(), strict=True))
        if self._masters:
            names = {parameter: name for parameter, name in named if name in kept}
            for one in self._masters:
                one.take_whole_state(LazyValues(names, lambda parameter: kept[names[parameter]]))
            return
        state = {number: dict(kept[named[number][1]]) for number in self._local_numbers()
                 if named[number][1] in kept}  # fmt: skip
        load_joint(self._optimizers, {**self.state_dict(), "state": state})

    def groups_by_number(self) -> list[list[int]]:
        """The numbers of the parameters in each group."""
        sizes = [len(group) for group in self._groups()]
        ends = list(itertools.accumulate(sizes))
        return [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]

    def settle(self) -> None:
        """The partition was made: drops the state of parameters of other partitions, and has that
        of this one's on their devices, to which they were moved."""
        if self._masters:
            return
        kept = self._only_local(self.state_dict())["state"]
        held = [optimizer for optimizer in self._optimizers for group in optimizer.param_groups
                for _ in group["params"]]  # fmt: skip
        for index, (optimizer, parameter) in enumerate(
            zip(held, self.given_parameters(), strict=True)
        ):
            if index not in kept:
                optimizer.state.pop(parameter, None)
        for optimizer in self._optimizers:
            move_state(optimizer)

    def _groups(self) -> list[list[torch.Tensor]]:
        """Parameters that the script made the groups from; masters may be in their place."""
        if self._masters:
            return [group for one in self._masters for group in one.original_groups]
        return [group["params"] for optimizer in self._optimizers
                for group in optimizer.param_groups]  # fmt: skip

    def given_parameters(self) -> list[torch.Tensor]:
        """Parameters that the script made the wrapped optimizers from, in its order."""
        return [parameter for group in self._groups() for parameter in group]

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
        numbers = set(self._local_numbers())
        kept = {index: value for index, value in state_dict["state"].items() if index in numbers}
        return {**state_dict, "state": kept}

    def _local_numbers(self) -> list[int]:
        """Those of the parameters that this rank steps, before the partition of all."""
        parameters = self.given_parameters()
        if state.model is None or not state.model.partitioned:
            return list(range(len(parameters)))
        local = set(state.model.local_parameters())
        return [number for number, parameter in enumerate(parameters) if parameter in local]

    def local_state(self) -> dict[str, dict[str, Any]]:
        """What is kept for the parameters that this rank steps, by name, without masters."""
        kept, names = self._only_local(self.state_dict())["state"], self.parameter_names()
        return {names[number]: values for number, values in kept.items()
                if isinstance(number, int)}  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""An optimizer of PyTorch over masters: its groups, its state and its updates.

It is made from the model's parameters and gets the runs of ``_runtime.MasterParameters`` instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch._slices.whole_norms import Tensors, WholeNorms
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError, SMPValidationError
from smdistributed.modelparallel.torch.optimizers import FusedAdam, FusedWithNorms
from smdistributed.modelparallel.torch.ports import Sharded
from smdistributed.modelparallel.torch.state_mod import holding, state

#: Keys under which PyTorch's optimizers keep one number for a parameter.
_COUNTS = frozenset({"step", "eta", "mu", "mu_product"})


class MasterParameters:
    """The runs of one optimizer, and its steps over them. Takes over its groups."""

    def __init__(self, sharded: Sharded, optimizer: torch.optim.Optimizer) -> None:
        self.sharded, self.optimizer = sharded, optimizer
        for group in optimizer.param_groups:
            self._refuse_strangers(group["params"])
        self.original_groups = [list(group["params"]) for group in optimizer.param_groups]
        self.group_of = {
            sharded.number_of[parameter]: number
            for number, group in enumerate(self.original_groups)
            for parameter in group
            if parameter in sharded.number_of
        }
        self.is_cleared = False
        """``zero_grad`` was called since the last gradients came."""
        self.is_updating = False
        """The optimizer steps for this."""
        early = dict(optimizer.state)
        optimizer.state.clear()
        self.core = _runtime.MasterParameters(
            session=state.require_initialized("smp.DistributedOptimizer"),
            store=sharded.store,
            shapes=sharded.shapes,
            group_of=[self.group_of.get(n, -1) for n in range(len(sharded.parameters))],
            whole=[sharded.is_whole(n) for n in range(len(sharded.parameters))],
            counts=[sharded.counts_here(n) for n in range(len(sharded.parameters))],
            groups=len(self.original_groups),
            one_parameter_each=isinstance(optimizer, FusedWithNorms),
            control=sharded.groups.control,
            make_leaf=nn.Parameter,
        )
        self._take_runs()
        if isinstance(optimizer, FusedWithNorms):
            optimizer.norms = MasterNorms(self)
        for group in optimizer.param_groups:
            group["params"] = []
        for run in self.runs:
            optimizer.param_groups[run.group]["params"].append(run.parameter)
            self._keep_early_state(run, early)

    def _take_runs(self) -> None:
        self.runs = self.core.runs
        self.leaves = {run.parameter for run in self.runs}
        """Parameters that the optimizer has in its groups."""

    def make_steps(self, scaler: _runtime.LossScaler) -> _runtime.MixedPrecisionSteps:
        """Steps of all masters over the store, with one loss scale; of none yet."""
        on_demand = self.sharded.plan.on_demand
        return _runtime.MixedPrecisionSteps(
            session=state.require_initialized("the optimizer's masters"),
            store=self.sharded.store,
            scaler=scaler,
            scaled=state.cfg.fp16,
            clipping=state.cfg.sdp_gradient_clipping if on_demand else 0.0,
        )

    def _refuse_strangers(self, parameters: Iterable[torch.Tensor]) -> None:
        model = state.model
        for parameter in parameters:
            if parameter in self.sharded.number_of or not parameter.requires_grad:
                continue
            if model is None or parameter not in set(model.parameters()):
                raise SMPValidationError(
                    f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is not "
                    "the model's; with sharded or 16-bit state it steps the model's parameters only"
                )

    def adopt(self) -> None:
        """Takes over parameters of the model that came to the optimizer's groups, by whatever way,
        as runs of their own.

        Raises SMPValidationError for those of another model or of another optimizer, and
        SMPUnsupportedError where masters are gone from the groups.
        """
        groups = self.optimizer.param_groups
        held = [parameter for group in groups for parameter in group["params"]]
        if len(groups) == len(self.original_groups) and self.leaves == set(held):
            return
        kind = type(self.optimizer).__name__
        if len(groups) < len(self.original_groups) or not self.leaves.issubset(held):
            raise SMPUnsupportedError(
                f"parameters are gone from the groups of {kind}, which hold 32-bit masters of the "
                "model's; give them a group with a learning rate of 0, or make another optimizer"
            )
        new = [[p for p in group["params"] if p not in self.leaves] for group in groups]
        self._refuse_strangers(parameter for group in new for parameter in group)
        for one in state.optimizers:
            taken = set(one.states.given_parameters())
            twice = sum(p in taken for group in new for p in group)
            if twice:
                raise SMPValidationError(
                    f"{twice} parameters that {kind} got are in {type(one.optimizer).__name__} "
                    "already; a parameter of the model has one optimizer"
                )
        for number, (group, parameters) in enumerate(zip(groups, new, strict=True)):
            group["params"] = [p for p in group["params"] if p in self.leaves]
            self._add(number, parameters)

    def _add(self, group: int, parameters: list[torch.Tensor]) -> None:
        """To the optimizer's group of this number, which may be the next one."""
        if group == len(self.original_groups):
            self.original_groups.append([])
        self.original_groups[group] += parameters
        new = set(parameters)
        numbers = [n for n, parameter in enumerate(self.sharded.parameters) if parameter in new]
        self.group_of.update(dict.fromkeys(numbers, group))
        before = len(self.runs)
        self.core.add(numbers, group)
        self._take_runs()
        early = {p: self.optimizer.state.pop(p) for p in parameters if p in self.optimizer.state}
        for run in self.runs[before:]:
            self.optimizer.param_groups[group]["params"].append(run.parameter)
            self._keep_early_state(run, early)
        if self.sharded.store.has_gradients and not self.is_cleared:
            self.core.show_gradients(True)

    def release(self) -> None:
        """Gives the optimizer back the parameters that it was made from, without state."""
        for group, originals in zip(self.optimizer.param_groups, self.original_groups, strict=True):
            group["params"] = list(originals)
        self.optimizer.state.clear()

    def _keep_early_state(
        self, run: _runtime.MasterRun, early: Mapping[Any, Mapping[str, Any]]
    ) -> None:
        """Cuts state that the optimizer had made for whole parameters to the run."""
        for piece in run.pieces:
            whole = early.get(self.sharded.parameters[piece.parameter])
            for key, value in (whole or {}).items():
                part, sliced = part_of(key, value, piece, self.sharded.shapes[piece.parameter])
                self.put_state(run, piece, key, part, sliced=sliced)

    def detach(self) -> None:
        """Lets the session go, which has ended: there is nothing to step any more."""
        self.runs = []
        self.leaves = set()
        del self.core

    def step(self, steps: _runtime.MixedPrecisionSteps) -> None:
        """Steps the optimizer and shows modules the result, unless there are no gradients, or some
        overflowed."""
        self.adopt()
        if self.is_cleared:
            return
        factor = steps.begin_update()
        if factor is None:
            return
        with holding(self, is_updating=True):
            if isinstance(self.optimizer, FusedAdam):
                with holding(self.optimizer, gradient_factor=factor):
                    self.optimizer.step()
            else:
                steps.apply_factor()
                self.optimizer.step()
        steps.end_update()

    def numbers(self) -> list[list[int]]:
        """Numbers of the parameters of each group, in the script's order."""
        known = self.sharded.number_of
        return [[known[p] for p in group if p in known] for group in self.original_groups]

    def put_state(
        self,
        run: _runtime.MasterRun,
        piece: _runtime.OwnedPiece,
        key: str,
        value: Any,
        *,
        sliced: bool,
    ) -> None:
        """Sets what the optimizer knows of one piece: its slice of a state tensor, or a number."""
        held = self.optimizer.state[run.parameter]
        if not sliced:
            held.setdefault(key, value.clone() if isinstance(value, torch.Tensor) else value)
            return
        if key not in held:
            held[key] = torch.zeros_like(run.parameter, dtype=value.dtype, requires_grad=False)
        run.slice_of(piece, held[key]).copy_(value)

    # --- Saved state; see shard_states ---

    def settings_of_groups(self) -> list[dict[str, Any]]:
        """Settings of the optimizer's groups, and the names of their parameters."""
        assert state.model is not None
        name_of = {parameter: name for name, parameter in state.model.named_parameters()}
        return [
            {
                **{key: value for key, value in group.items() if key != "params"},
                "names": [name_of.get(parameter, "") for parameter in originals],
            }
            for group, originals in zip(
                self.optimizer.param_groups, self.original_groups, strict=True
            )
        ]

    def take_settings(self, saved: list[dict[str, Any]]) -> None:
        """Takes settings of groups of the same parameters; drops the optimizer's state."""
        for group, settings in zip(self.optimizer.param_groups, saved, strict=True):
            group.update(settings)
        self.optimizer.state.clear()

    def take_state(self, saved: _runtime.SavedState) -> None:
        """Everything that the optimizer keeps for its runs."""
        for run in self.runs:
            kept = saved.state_of_run(run, self.sharded.names)
            if kept:
                self.optimizer.state[run.parameter] = kept

    def take_whole_state(self, states: Mapping[Any, Mapping[str, Any]]) -> None:
        """The same from what is kept for the model's whole parameters, which is looked at for one
        after the other."""
        for run in self.runs:
            self._keep_early_state(run, states)


class MasterNorms(WholeNorms):
    """Norms of whole parameters where runs of one parameter each are stepped: over all shards."""

    def __init__(self, masters: MasterParameters) -> None:
        self._masters = masters
        self._numbers: dict[torch.Tensor, int] = {}

    def of(self, parameters: Tensors, values: Tensors, norm_type: float = 2.0) -> Tensors:
        """All ranks of a shard group call it for the same parameters, whatever they own."""
        powers = torch.zeros(len(self._masters.sharded.parameters), dtype=torch.float64)
        numbers = [self._number_of(parameter) for parameter in parameters]
        if values:
            norms = torch.stack([n.double() for n in torch._foreach_norm(values, norm_type)]).cpu()
            powers[numbers] = norms if math.isinf(norm_type) else norms**norm_type
        whole = self._masters.core.norms_by_number(powers, norm_type)[numbers]
        # The host waits for each copy to a GPU.
        kinds = {(value.device, value.dtype) for value in values}
        copies = {kind: whole.to(*kind).unbind() for kind in kinds}
        return [copies[value.device, value.dtype][n] for n, value in enumerate(values)]

    def of_gradients(self, parameters: Tensors) -> float:
        return self._masters.core.norm(2)

    def _number_of(self, leaf: torch.Tensor) -> int:
        """Number of the one parameter to which a run belongs."""
        if len(self._numbers) < len(self._masters.runs):
            self._numbers = {run.parameter: run.pieces[0].parameter for run in self._masters.runs}
        return self._numbers[leaf]


def part_of(
    key: str, value: Any, piece: _runtime.OwnedPiece, shape: tuple[int, ...]
) -> tuple[Any, bool]:
    """The slice for ``piece`` of a whole parameter's state, and whether it has one. That of a
    parameter without a dimension has the shape of a count of steps."""
    is_count = key in _COUNTS and not shape
    if isinstance(value, torch.Tensor) and tuple(value.shape) == shape and not is_count:
        return value.reshape(-1).narrow(0, piece.start, piece.elements), True
    return value, False

# SPDX-License-Identifier: Apache-2.0
"""An optimizer of PyTorch over masters: its groups, its state, its steps and what it may be.

It is made from the model's parameters and gets the runs of ``_runtime.MasterParameters`` instead.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch._session import ranks
from smdistributed.modelparallel.torch._sharding.sharded_model import ShardedModel
from smdistributed.modelparallel.torch._sharding.whole_norms import Tensors, WholeNorms
from smdistributed.modelparallel.torch.exceptions import (
    SMPUnsupportedError,
    SMPValidationError,
)
from smdistributed.modelparallel.torch.optimizers import FusedAdam, FusedWithNorms
from smdistributed.modelparallel.torch.state_mod import state

#: Optimizers, by class name, whose update of an element depends on more of its parameter.
_PER_TENSOR = ("lamb", "lars", "novograd", "adafactor", "muon", "shampoo")
#: And those for which it depends on all parameters.
_ALL_AT_ONCE = ("lbfgs",)


def needs_whole_parameters(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer looks at whole parameters and has no way to do so over shards."""
    if isinstance(optimizer, FusedWithNorms) and ranks.tp_size() == 1:
        return False
    return _is_one_of(optimizer, _PER_TENSOR)


def _is_one_of(optimizer: torch.optim.Optimizer, names: tuple[str, ...]) -> bool:
    return any(name in type(optimizer).__name__.lower() for name in names)


class MasterParameters:
    """The runs of one optimizer, and its steps over them. Takes over its groups."""

    def __init__(
        self,
        sharded: ShardedModel,
        optimizer: torch.optim.Optimizer,
        scaler: _runtime.LossScaler,
    ) -> None:
        self.sharded, self.optimizer = sharded, optimizer
        self._refuse_unfit()
        self.original_groups = [list(group["params"]) for group in optimizer.param_groups]
        self.group_of = {
            sharded.number_of[parameter]: number
            for number, group in enumerate(self.original_groups)
            for parameter in group
            if parameter in sharded.number_of
        }
        early = dict(optimizer.state)
        optimizer.state.clear()
        session = state.require_initialized("smp.DistributedOptimizer")
        self.core = _runtime.MasterParameters(
            session=session,
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
        self._steps: _runtime.MixedPrecisionSteps | None = _runtime.MixedPrecisionSteps(
            session=session,
            store=sharded.store,
            masters=self.core,
            scaler=scaler,
            scaled=state.cfg.fp16,
            clipping=state.cfg.sdp_gradient_clipping if sharded.plan.on_demand else 0.0,
        )
        self.runs = self.core.runs
        if isinstance(optimizer, FusedWithNorms):
            optimizer.norms = MasterNorms(self)
        for group in optimizer.param_groups:
            group["params"] = []
        for run in self.runs:
            optimizer.param_groups[run.group]["params"].append(run.parameter)
            self._keep_early_state(run, early)
        # Of the parameter to which a run belongs, where each belongs to one.
        self.number_of_run = {run.parameter: run.pieces[0].parameter for run in self.runs}

    def _refuse_unfit(self) -> None:
        kind, how = type(self.optimizer).__name__, self.sharded.plan
        shared = max(how.degree, how.own_degree, ranks.tp_size()) > 1
        if shared and _is_one_of(self.optimizer, _ALL_AT_ONCE):
            raise SMPUnsupportedError(
                f"smp.DistributedOptimizer got {kind}, whose update needs all parameters at once; "
                "here ranks share them. Use another optimizer, or neither sharding nor tensor "
                "parallelism"
            )
        cut = self.sharded.plan.cuts_parameters or ranks.tp_size() > 1
        if cut and needs_whole_parameters(self.optimizer):
            raise SMPUnsupportedError(
                f"smp.DistributedOptimizer got {kind}, whose update needs whole parameters; shards "
                "of sharded data parallelism and slices of layers cut them. Use an element-wise "
                "optimizer such as Adam, or shard_optimizer_state without tensor parallelism, "
                "which keeps parameters whole; FusedLAMB and FusedNovoGrad of smp.optimizers go "
                "with sharded data parallelism, too"
            )
        known = self.sharded.number_of
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter not in known and parameter.requires_grad:
                    own = state.model is None or parameter in set(state.model.parameters())
                    if not own:
                        raise SMPValidationError(
                            f"the optimizer has a parameter of shape {tuple(parameter.shape)} that "
                            "is not the model's; with sharded or 16-bit state it steps the "
                            "model's parameters only"
                        )

    def _keep_early_state(self, run: _runtime.MasterRun, early: dict[Any, dict[str, Any]]) -> None:
        """What the optimizer had made for whole parameters, cut to the run."""
        for piece in run.pieces:
            whole = early.get(self.sharded.parameters[piece.parameter])
            for key, value in (whole or {}).items():
                part, sliced = part_of(value, piece, self.sharded.shapes[piece.parameter])
                self.put_state(run, piece, key, part, sliced=sliced)

    def detach(self) -> None:
        """Lets the session go, which has ended: there is nothing to step any more."""
        self.runs = []
        self._steps = None
        del self.core

    @property
    def steps(self) -> _runtime.MixedPrecisionSteps:
        """Raises SMPNotInitializedError when the session has ended."""
        state.require_initialized("the optimizer's masters")
        assert self._steps is not None
        return self._steps

    @property
    def overflow(self) -> bool:
        return self._steps is not None and self._steps.overflow

    @property
    def last_norm(self) -> float | None:
        return None if self._steps is None else self._steps.last_norm

    def step(self) -> None:
        """Steps the optimizer and shows modules the result, unless gradients overflowed."""
        factor = self.steps.begin_update()
        if factor is None:
            return
        if isinstance(self.optimizer, FusedAdam):
            self.optimizer.gradient_factor = factor
            try:
                self.optimizer.step()
            finally:
                self.optimizer.gradient_factor = 1.0
        else:
            self.steps.apply_factor()
            self.optimizer.step()
        self.steps.end_update()

    def numbers(self) -> list[list[int]]:
        """Of the parameters of each group, in the script's order."""
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
        """What the optimizer's groups say, and the names of their parameters."""
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
        """Of groups of the same parameters; drops the optimizer's state."""
        for group, settings in zip(self.optimizer.param_groups, saved, strict=True):
            group.update({key: value for key, value in settings.items() if key != "names"})
        self.optimizer.state.clear()

    def put_piece(
        self, piece: _runtime.OwnedPiece, values: dict[str, Any], scalars: dict[str, Any]
    ) -> None:
        """What the optimizer knows of one piece."""
        place = (piece.arena, piece.offset)
        run = next((run for run in self.runs if (run.arena, run.offset) <= place
                    < (run.arena, run.offset + run.elements)), None)  # fmt: skip
        if run is None:
            return  # a parameter that the optimizer does not have
        for key, value in values.items():
            self.put_state(run, piece, key, value, sliced=True)
        for key, value in scalars.items():
            self.put_state(run, piece, key, value, sliced=False)


class MasterNorms(WholeNorms):
    """Norms of whole parameters where runs of one parameter each are stepped: over all shards."""

    def __init__(self, masters: MasterParameters) -> None:
        self._masters = masters

    def of(self, parameters: Tensors, values: Tensors, norm_type: float = 2.0) -> Tensors:
        """All ranks of a shard group call it for the same parameters, whatever they own."""
        powers = torch.zeros(len(self._masters.sharded.parameters), dtype=torch.float64)
        numbers = [self._masters.number_of_run[parameter] for parameter in parameters]
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


def part_of(value: Any, piece: _runtime.OwnedPiece, shape: tuple[int, ...]) -> tuple[Any, bool]:
    """The slice for ``piece`` of a whole parameter's state, and whether it has one."""
    if isinstance(value, torch.Tensor) and tuple(value.shape) == shape:
        return value.reshape(-1).narrow(0, piece.start, piece.elements), True
    return value, False

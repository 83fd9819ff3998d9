# SPDX-License-Identifier: Apache-2.0
"""What an optimizer steps when the model's state is flat: runs of masters owned by this rank.

An optimizer is made from the model's parameters; here its groups get the runs instead. A run is as
long as consecutive elements belong to one group: with one group it is all that the rank owns. Where
no parameter is cut each is a run of its own shape, so that optimizers which look at whole tensors
work, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch._session import ranks
from smdistributed.modelparallel.torch._sharding.sharded_model import ShardedModel
from smdistributed.modelparallel.torch._sharding.whole_norms import Tensors, WholeNorms
from smdistributed.modelparallel.torch.exceptions import (
    SMPUnsupportedError,
    SMPValidationError,
)
from smdistributed.modelparallel.torch.optimizers import FusedWithNorms
from smdistributed.modelparallel.torch.state_mod import state

#: Optimizers, by class name, whose update of an element depends on more of its parameter.
_PER_TENSOR = ("lamb", "lars", "novograd", "adafactor", "muon", "shampoo")
#: And those for which it depends on all parameters.
_ALL_AT_ONCE = ("lbfgs",)
_MEASURED_AT_ONCE = 1 << 20  # elements that torch copies to 64 bits, to measure them


def needs_whole_parameters(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer looks at whole parameters and has no way to do so over shards."""
    if isinstance(optimizer, FusedWithNorms) and ranks.tp_size() == 1:
        return False
    return _is_one_of(optimizer, _PER_TENSOR)


def _is_one_of(optimizer: torch.optim.Optimizer, names: tuple[str, ...]) -> bool:
    return any(name in type(optimizer).__name__.lower() for name in names)


@dataclass
class Run:
    """A stretch of one arena, and the parameter that the optimizer steps for it."""

    arena: int
    offset: int
    elements: int
    group: int
    pieces: list[_runtime.OwnedPiece] = field(default_factory=list)
    parameter: nn.Parameter | None = None

    def slice_of(self, piece: _runtime.OwnedPiece, tensor: torch.Tensor) -> torch.Tensor:
        """What of a tensor of the run's elements belongs to ``piece``."""
        return tensor.reshape(-1).narrow(0, piece.offset - self.offset, piece.elements)


class MasterParameters:
    """The runs of one optimizer. Takes over its groups."""

    def __init__(self, sharded: ShardedModel, optimizer: torch.optim.Optimizer) -> None:
        self._sharded, self.optimizer = sharded, optimizer
        self._refuse_unfit()
        self.original_groups = [list(group["params"]) for group in optimizer.param_groups]
        self._group_of = {
            sharded.number_of[parameter]: number
            for number, group in enumerate(self.original_groups)
            for parameter in group
            if parameter in sharded.number_of
        }
        self.runs = self._cut()
        if isinstance(optimizer, FusedWithNorms):
            optimizer.norms = MasterNorms(self)
        masters = sharded.store.masters()
        early = dict(optimizer.state)
        optimizer.state.clear()
        for group in optimizer.param_groups:
            group["params"] = []
        for run in self.runs:
            value = masters[run.arena].narrow(0, run.offset, run.elements)
            number = run.pieces[0].parameter
            if sharded.is_whole(number):
                value = value.view(sharded.shapes[number])
            run.parameter = nn.Parameter(value)
            optimizer.param_groups[run.group]["params"].append(run.parameter)
            self._keep_early_state(run, early)
        self._number_of_run: dict[torch.Tensor | None, int] = {
            run.parameter: run.pieces[0].parameter for run in self.runs
        }

    def _refuse_unfit(self) -> None:
        kind, how = type(self.optimizer).__name__, self._sharded.plan
        shared = max(how.degree, how.own_degree, ranks.tp_size()) > 1
        if shared and _is_one_of(self.optimizer, _ALL_AT_ONCE):
            raise SMPUnsupportedError(
                f"smp.DistributedOptimizer got {kind}, whose update needs all parameters at once; "
                "here ranks share them. Use another optimizer, or neither sharding nor tensor "
                "parallelism"
            )
        cut = self._sharded.cuts_parameters or ranks.tp_size() > 1
        if cut and needs_whole_parameters(self.optimizer):
            raise SMPUnsupportedError(
                f"smp.DistributedOptimizer got {kind}, whose update needs whole parameters; shards "
                "of sharded data parallelism and slices of layers cut them. Use an element-wise "
                "optimizer such as Adam, or shard_optimizer_state without tensor parallelism, "
                "which keeps parameters whole; FusedLAMB and FusedNovoGrad of smp.optimizers go "
                "with sharded data parallelism, too"
            )
        known = self._sharded.number_of
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

    def _cut(self) -> list[Run]:
        group_of = self._group_of
        runs: list[Run] = []
        broken = True  # the pieces between belong to no group
        for piece in self._sharded.store.pieces():
            group = group_of.get(piece.parameter)
            if group is None:
                broken = True
                continue
            last = runs[-1] if runs else None
            joins = (
                not (broken or isinstance(self.optimizer, FusedWithNorms))
                and not self._sharded.is_whole(piece.parameter)
                and last is not None
                and (last.arena, last.group) == (piece.arena, group)
            )
            if joins:
                assert last is not None
                last.elements = piece.offset + piece.elements - last.offset  # padding included
                last.pieces.append(piece)
            else:
                runs.append(Run(piece.arena, piece.offset, piece.elements, group, [piece]))
            broken = False
        return runs

    def _keep_early_state(self, run: Run, early: dict[Any, dict[str, Any]]) -> None:
        """What the optimizer had made for whole parameters, cut to the run."""
        assert run.parameter is not None
        for piece in run.pieces:
            whole = early.get(self._sharded.parameters[piece.parameter])
            for key, value in (whole or {}).items():
                part, sliced = part_of(value, piece, self._sharded.shapes[piece.parameter])
                self.put_state(run, piece, key, part, sliced=sliced)

    @property
    def parameter_count(self) -> int:
        """Of this partition of the model."""
        return len(self._sharded.parameters)

    def numbers(self) -> list[list[int]]:
        """Of the parameters of each group, in the script's order."""
        known = self._sharded.number_of
        return [[known[p] for p in group if p in known] for group in self.original_groups]

    def steps(self, number: int) -> bool:
        """Whether the parameter of that number is one of the optimizer's."""
        return number in self._group_of

    def number_of_run(self, parameter: torch.Tensor) -> int:
        """Of the parameter to which a run belongs, where each belongs to one."""
        return self._number_of_run[parameter]

    def put_state(
        self, run: Run, piece: _runtime.OwnedPiece, key: str, value: Any, *, sliced: bool
    ) -> None:
        """Sets what the optimizer knows of one piece: its slice of a state tensor, or a number."""
        assert run.parameter is not None
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

    # --- Gradients ---

    def show_gradients(self, visible: bool) -> None:
        gradients = self._sharded.store.gradients() if visible else []
        for run in self.runs:
            assert run.parameter is not None
            run.parameter.grad = None
            if visible:
                flat = gradients[run.arena].narrow(0, run.offset, run.elements)
                run.parameter.grad = flat.view(run.parameter.shape)

    def norm(self, norm_type: float) -> float:
        """Of all gradients of the model, each counted once; not finite if one is not. Collective
        over the ranks of one copy."""
        infinite = norm_type == float("inf")
        grads = [grad for run in self.runs for grad in self._counted(run)]
        total = _sum_of_powers(grads, norm_type)
        # MAX of gloo drops NaN, a sum keeps it.
        good = math.isfinite(total)
        both = torch.tensor([total if good else 0.0, float(not good)], dtype=torch.float64)
        operation = dist.ReduceOp.MAX if infinite else dist.ReduceOp.SUM
        session = state.require_initialized("the norm of gradients")
        for group in self._groups_of_one_copy():
            session.all_reduce("the norm of gradients", both, group, operation)
        if both[1] > 0:
            return float("nan")
        return float(both[0] if infinite else both[0] ** (1 / norm_type))

    def _counted(self, run: Run) -> list[torch.Tensor]:
        """The gradients of a run that this rank speaks for."""
        assert run.parameter is not None
        grad = run.parameter.grad
        if grad is None:
            return []
        counted = [self._sharded.counts_here(piece.parameter) for piece in run.pieces]
        if all(counted):
            return [grad]
        return [run.slice_of(piece, grad)
                for piece, here in zip(run.pieces, counted, strict=True) if here]  # fmt: skip

    def norms_by_number(self, powers: torch.Tensor, norm_type: float) -> torch.Tensor:
        """Norms by the parameters' numbers, of ``powers``: what this rank's pieces add to them, or
        the largest elements for the infinite norm. Collective over the shard group."""
        largest = math.isinf(norm_type)
        if self._sharded.groups.control is not None:
            operation = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM
            what = "the norms of parameters"
            session = state.require_initialized(what)
            session.all_reduce(what, powers, self._sharded.groups.control, operation)
        return powers if largest else powers ** (1 / norm_type)

    def _groups_of_one_copy(self) -> list[dist.ProcessGroup]:
        groups: list[dist.ProcessGroup] = []
        if self._sharded.groups.control is not None:
            groups.append(self._sharded.groups.control)
        made = state.require_initialized("the norm of gradients").groups
        for kind, size in (("TP", ranks.tp_size()), ("PP", ranks.pp_size())):
            if size > 1:
                groups.append(made.cpu_group(kind))
        return groups

    def scale_gradients(self, factor: float) -> None:
        if factor == 1.0:
            return
        for gradient in self._sharded.store.gradients():
            gradient.mul_(factor)

    # --- Names of the published library ---

    def flat_groups(self) -> list[torch.Tensor]:
        """The masters of this rank by group of the optimizer, without a copy where a group is one
        run."""
        flat: list[torch.Tensor] = []
        for number in range(len(self.original_groups)):
            parts = [run.parameter.detach().reshape(-1) for run in self.runs
                     if run.group == number and run.parameter is not None]  # fmt: skip
            if len(parts) == 1:
                flat.append(parts[0])
            else:
                flat.append(torch.cat(parts) if parts else torch.empty(0))
        return flat


class MasterNorms(WholeNorms):
    """Norms of whole parameters where runs of one parameter each are stepped: over all shards."""

    def __init__(self, masters: MasterParameters) -> None:
        self._masters = masters

    def of(self, parameters: Tensors, values: Tensors, norm_type: float = 2.0) -> Tensors:
        """All ranks of a shard group call it for the same parameters, whatever they own."""
        powers = torch.zeros(self._masters.parameter_count, dtype=torch.float64)
        numbers = [self._masters.number_of_run(parameter) for parameter in parameters]
        if values:
            norms = torch.stack([n.double() for n in torch._foreach_norm(values, norm_type)]).cpu()
            powers[numbers] = norms if math.isinf(norm_type) else norms**norm_type
        whole = self._masters.norms_by_number(powers, norm_type)[numbers]
        # The host waits for each copy to a GPU.
        kinds = {(value.device, value.dtype) for value in values}
        copies = {kind: whole.to(*kind).unbind() for kind in kinds}
        return [copies[value.device, value.dtype][n] for n, value in enumerate(values)]

    def of_gradients(self, parameters: Tensors) -> float:
        return self._masters.norm(2)


def _sum_of_powers(grads: list[torch.Tensor], norm_type: float) -> float:
    """The largest of all elements for the infinite norm. Without copies as large as a gradient."""
    if norm_type == 2:
        by_type: dict[torch.dtype, list[torch.Tensor]] = {}
        for grad in grads:
            by_type.setdefault(grad.dtype, []).append(grad)
        return sum(_runtime.sum_of_squares(alike) for alike in by_type.values())
    norms = [
        torch.linalg.vector_norm(part, norm_type, dtype=torch.float64)
        for grad in grads
        for part in torch.split(grad.reshape(-1), _MEASURED_AT_ONCE)
    ]
    parts = torch.stack(norms).cpu() if norms else torch.zeros(1, dtype=torch.float64)
    return float(parts.max() if math.isinf(norm_type) else parts.pow(norm_type).sum())


def part_of(value: Any, piece: _runtime.OwnedPiece, shape: tuple[int, ...]) -> tuple[Any, bool]:
    """The slice for ``piece`` of a whole parameter's state, and whether it has one."""
    if isinstance(value, torch.Tensor) and tuple(value.shape) == shape:
        return value.reshape(-1).narrow(0, piece.start, piece.elements), True
    return value, False


def agree_on_overflow(overflow: bool) -> bool:
    """Whether any rank of the job has one. Collective over all."""
    if ranks.size() == 1:
        return overflow
    session = state.require_initialized("the loss scale")
    flag = torch.tensor([float(overflow)])
    group = session.groups.cpu_group("WORLD")
    session.all_reduce("the loss scale", flag, group, dist.ReduceOp.MAX)
    return bool(flag.item())

# SPDX-License-Identifier: Apache-2.0
"""A model whose parameters, gradients or optimizer state are shards in C++.

What of it is sharded, and over whom, is one value, ``_runtime.ShardPlan``.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from smdistributed import _runtime
from smdistributed.modelparallel.torch._delayed.delayed_parameters import DeferredInitialization
from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch._ranks.devices import computing_device
from smdistributed.modelparallel.torch._sharding.model_blocks import Blocks, find_blocks
from smdistributed.modelparallel.torch._sharding.precision import begins_in_fp16
from smdistributed.modelparallel.torch._slices.parameter_slices import (
    distribution_axis,
    is_scaled_batch,
)
from smdistributed.modelparallel.torch.exceptions import SMPStepError, SMPUnsupportedError
from smdistributed.modelparallel.torch.state_mod import state


def plan() -> _runtime.ShardPlan | None:
    """Plan by which the job's settings shard a model; None where it stays as it is."""
    return _runtime.plan_shards(state.require_initialized("sharding"))


def deferred_parameters(module: nn.Module) -> DeferredInitialization | None:
    """The delayed parameters of ``module`` if this rank will keep shards of them only."""
    how = plan()
    if how is None or not how.on_demand or begins_in_fp16():  # fp16 narrows parameters in place
        return None
    return DeferredInitialization(module, computing_device())


_NAMES = ("new", "new_tensor")
_WATCHED: Any = torch._C._parse_dispatch_key("DeferredInit")  # as in sharding/value_reads.h


def offer_plain_constructors() -> None:
    """From now on they work in this process for tensors whose values may be elsewhere."""
    for name in _NAMES:
        function = getattr(torch.Tensor, name)
        if not hasattr(function, "__wrapped__"):
            setattr(torch.Tensor, name, _of_plain(function))


def _of_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def construct(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if torch._C._dispatch_keys(tensor).has(_WATCHED):
            tensor = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return function(tensor, *args, **kwargs)

    return construct


class ShardedModel:
    """The store of one model, and the hooks by which modules ask it for their parameters.

    ``parameters`` are those that live on this rank, by name, whole and equal on all replicas.
    Construction is collective over the data-parallel ranks.
    """

    def __init__(
        self,
        root: nn.Module,
        module: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        how: _runtime.ShardPlan,
    ) -> None:
        _refuse_forwards_that_write(module)
        self.plan = how
        session = state.require_initialized("sharding")
        groups = _runtime.make_shard_groups(session, how)
        self.groups: _runtime.ShardGroups = groups[-1]
        """Groups of the parameters that tensor ranks split; without tensor parallelism of all."""
        kept = {
            name: p for name, p in parameters.items() if p.is_floating_point() or p.is_complex()
        }
        self.names = list(kept)
        self.parameters = list(kept.values())
        self.shapes = [tuple(p.shape) for p in self.parameters]
        self.number_of = {parameter: number for number, parameter in enumerate(self.parameters)}
        self._axes = [distribution_axis(p) for p in self.parameters]
        of_parameter = [int(is_scaled_batch(p)) for p in self.parameters]
        # Number of ranks that share the state of each parameter.
        self._degrees = [groups[number].degree for number in of_parameter]
        blocks = find_blocks(module)
        self.store = _runtime.ParameterStore(
            session=session,
            plan=how,
            groups=groups,
            parameters=self.parameters,
            names=self.names,
            blocks=[blocks.of_parameter[p] for p in self.parameters],
            group_of=of_parameter,
            block_names=blocks.names,
        )
        if how.on_demand:
            offer_plain_constructors()
            self._hook(root, module, blocks)
            self._name_shards()

    def state_by_formula(self) -> int:
        """Bytes on this rank: see state_by_formula() of the memory ledger."""
        sizes = (math.prod(shape) for shape in self.shapes)
        return sum(16 * size // of for size, of in zip(sizes, self._degrees, strict=True))

    def is_whole(self, parameter: int) -> bool:
        """True if the state of a parameter is on one rank, all of it."""
        return not self.plan.cut or self._degrees[parameter] == 1

    @property
    def spread_names(self) -> list[str]:
        """Parameters that the ranks of several tensor-parallel copies share."""
        if self.plan.own_degree == self.plan.degree:
            return []
        return [name for name, degree in zip(self.names, self._degrees, strict=True)
                if degree != self.plan.degree]  # fmt: skip

    def counts_here(self, parameter: int) -> bool:
        """True if this rank's part of a parameter counts in sums over a copy of the model: of parts
        that tensor ranks hold alike the first rank's does."""
        if ranks.tp_rank() == 0 or self._axes[parameter] is not None:
            return True
        return self._degrees[parameter] != self.plan.degree

    # --- Forward ---

    def _hook(self, root: nn.Module, module: nn.Module, blocks: Blocks) -> None:
        unit_of = self.store.unit_of_parameters()
        persistent = {n for n, unit in enumerate(self.store.units()) if unit["persistent"]}
        gathered = {p: unit_of[n] for n, p in enumerate(self.parameters)
                    if unit_of[n] not in persistent}  # fmt: skip
        units_of_block: dict[nn.Module, set[int]] = {}
        for parameter, unit in gathered.items():
            owner = blocks.modules[blocks.of_parameter[parameter]]
            units_of_block.setdefault(owner, set()).add(unit)
        for part, covered in _walk(module, units_of_block, set()):
            own = {gathered[p] for p in part._parameters.values() if p in gathered}
            needed = own | units_of_block.get(part, set())
            if needed - covered and part is not module:
                _Calls(part, sorted(needed), self.store, begins=False)
        _Calls(root, sorted(units_of_block.get(module, set())), self.store, begins=True)

    def _name_shards(self) -> None:
        """The names under which scripts of the published library look for shards."""
        masters = self.store.masters()
        own = {piece.parameter: piece for piece in self.store.pieces()}
        for number, parameter in enumerate(self.parameters):
            piece = own.get(number)
            shard = torch.empty(0, dtype=parameter.dtype)
            if piece is not None:
                shard = masters[piece.arena].narrow(0, piece.offset, piece.elements)
            shard.ds_numel = shard.numel()  # type: ignore[attr-defined]
            named: Any = parameter
            named.ds_tensor = shard
            named.ds_numel = parameter.numel()
            named.ds_shape = torch.Size(self.shapes[number])
            named.ds_id = number

    # --- Steps ---

    @contextlib.contextmanager
    def alike(self) -> Iterator[None]:
        """All ranks run the same inside: reading a parameter's values gathers them."""
        self.store.set_alike(True)
        try:
            yield
        finally:
            self.store.set_alike(False)

    @contextlib.contextmanager
    def gathered(self, parameters: Iterable[nn.Parameter]) -> Iterator[None]:
        """The values of ``parameters`` are here inside. Collective over the shard group."""
        unit_of = self.store.unit_of_parameters()
        units = {unit_of[self.number_of[p]] for p in parameters if p in self.number_of}
        with self.waiting("smp.gathered_parameters"):
            self.store.enter(sorted(units))
        try:
            yield
        finally:
            self.store.leave([], False)

    def begin_step(self, due: bool) -> None:
        state.optimizers.begin_accumulation()
        self.store.begin_pass(torch.is_grad_enabled())
        self.store.begin_step(due, state.cfg.microbatches)

    def end_backward(self) -> None:
        """A backward of a step is over; others may follow in it."""
        if self.plan.on_demand:
            self.store.end_backward()

    def finish_step(self, due: bool) -> None:
        self.store.finish_step(due)
        if due:
            state.optimizers.begin()

    # --- Values ---

    def whole_values(self, frozen_only: bool = False) -> Iterator[tuple[str, torch.Tensor]]:
        """All parameters of this rank's modules, whole, as masters have them. Collective."""
        for number, unit in enumerate(self.store.units()):
            if frozen_only and self.parameters[unit["parameters"][0]].requires_grad:
                continue
            yield from self.whole_unit(number)

    def whole_unit(
        self, number: int, arenas: Sequence[torch.Tensor] | None = None
    ) -> list[tuple[str, torch.Tensor]]:
        """Those of one unit; or what ``arenas``, laid out as the masters, have in their place.
        Collective."""
        with self.waiting("the gathering of whole parameters"):
            values = self.store.whole_unit(number, arenas or self.store.masters())
        parameters = self.store.units()[number]["parameters"]
        return [(self.names[p], value) for p, value in zip(parameters, values, strict=True)]

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Around what all ranks that share a copy of the model call."""
        barriers = state.require_initialized(what).barriers
        with barriers.waiting(what, what, self.groups.ranks):
            yield

    def fill(
        self, deferred: DeferredInitialization, align: Callable[[nn.Parameter, torch.Tensor], None]
    ) -> None:
        """Takes the values of delayed parameters, one whole parameter at a time; ``align`` makes
        each equal on all that hold it. Collective."""

        def take(parameter: nn.Parameter, value: torch.Tensor) -> None:
            own = value.to(parameter.device)
            align(parameter, own)
            self.store.assign(self.number_of[parameter], own)

        deferred.make(take)
        self.store.publish()

    def assign(self, values: Mapping[str, torch.Tensor]) -> None:
        """Takes whole values by name; those without one stay. Collective."""
        for number, name in enumerate(self.names):
            if name in values:
                self.store.assign(number, values[name])
        self.store.publish()


def _refuse_forwards_that_write(module: nn.Module) -> None:
    """Refuses forwards that write into parameters: the change would be lost, for values come from
    the masters."""
    for name, part in module.named_modules():
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and part.max_norm is not None:
            raise SMPUnsupportedError(
                f"module {name or '(root)'} has max_norm={part.max_norm}, by which its forward "
                "changes its weight, and weights have masters here, or are sharded, so that the "
                "change would be lost: set max_norm to None, and scale what the module returns"
            )


def _walk(
    module: nn.Module, units_of_block: Mapping[nn.Module, set[int]], covered: set[int]
) -> Iterator[tuple[nn.Module, set[int]]]:
    """Each module once, and the units that are unsharded when those around it are called."""
    seen: set[nn.Module] = set()

    def walk(part: nn.Module, around: set[int]) -> Iterator[tuple[nn.Module, set[int]]]:
        if part in seen:
            return
        seen.add(part)
        yield part, around
        inside = around | units_of_block.get(part, set())
        for child in part.children():
            yield from walk(child, inside)

    return walk(module, covered)


class _Calls:
    """The hooks of one module: its units are unsharded while it is called."""

    def __init__(
        self, module: nn.Module, units: list[int], store: _runtime.ParameterStore, *, begins: bool
    ) -> None:
        self._units, self._store, self._begins = units, store, begins
        module.register_forward_pre_hook(self._enter)
        module.register_forward_hook(self._leave, always_call=True)

    def _enter(self, _module: nn.Module, _args: Any) -> None:
        if self._begins and not state.in_step:
            self._store.begin_pass(torch.is_grad_enabled())
        self._store.enter(self._units)

    def _leave(self, _module: nn.Module, _args: Any, output: Any) -> None:
        failed = output is None
        tensors = [] if failed or not torch.is_grad_enabled() else _tensors(output)
        self._store.leave(tensors, failed)


def _tensors(output: Any) -> list[torch.Tensor]:
    """Tensors of a module's result that have a gradient, also in objects that hold tensors."""
    found: list[torch.Tensor] = []
    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor):
            if leaf.requires_grad:
                found.append(leaf)
        elif isinstance(leaf, Mapping):
            found += _tensors(dict(leaf))
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, (type, nn.Module)):
            found += [t for t in tree_leaves(vars(leaf))
                      if isinstance(t, torch.Tensor) and t.requires_grad]  # fmt: skip
    return found


def kept_whole(
    sharded: ShardedModel, make: Callable[[_runtime.ShardPlan], ShardedModel]
) -> ShardedModel:
    """``make``s one of the same values that cuts no parameter. Collective over the data-parallel
    ranks. Raises SMPStepError where gradients would be lost."""
    if sharded.store.has_gradients or sharded.store.is_accumulating:
        raise SMPStepError(
            "smp.DistributedOptimizer got an optimizer that steps whole parameters after a "
            "backward, whose gradients would be lost; make it before the first step"
        )
    values = dict(sharded.whole_values())
    made = make(sharded.plan.without_cuts())
    made.assign(values)
    return made

# SPDX-License-Identifier: Apache-2.0
"""A model as the partitioners see it: modules as a tree, with what the trace saw of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch._partition.trace_recorder import Seen
from smdistributed.modelparallel.torch._partition.tracing import Trace

#: Modules that are run again together in backward, one after the other.
Regions = Collection[Sequence[nn.Module]]
#: Modules that only hold others: their forward is never called.
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def _execution_order(children: list[nn.Module], trace: Trace) -> list[nn.Module]:
    """Children that ran first come first; those that never ran keep their order behind them."""
    last = len(trace.seen)

    def first_run(module: nn.Module) -> int:
        return min((trace.seen[m].order for m in module.modules() if m in trace.seen), default=last)

    return sorted(children, key=first_run)


class _Parents:
    """Under which of its parents a module goes: the one that called it first, if one did."""

    def __init__(self, model: nn.Module, trace: Trace) -> None:
        self._trace = trace
        self._holders: dict[nn.Module, list[nn.Module]] = {}
        for module in model.modules():
            for child in module.children():
                self._holders.setdefault(child, []).append(module)

    def takes(self, parent: nn.Module, child: nn.Module) -> bool:
        seen = self._trace.seen.get(child)
        holders = self._holders[child]
        if seen is None or len(holders) == 1:
            return True
        callers = [holder for holder in holders if self._may_call(holder, seen.caller)]
        return not callers or parent in callers

    def _may_call(self, holder: nn.Module, caller: nn.Module | None) -> bool:
        """True if ``holder`` is the caller, or a container below it that is never run."""
        if holder is caller:
            return True
        if holder in self._trace.seen:
            return False
        return any(self._may_call(above, caller) for above in self._holders.get(holder, []))


@dataclass(frozen=True)
class ModuleRow:
    """One module of the tree, and the number of its parent in the list; -1 for the root's."""

    module: nn.Module
    name: str
    parent: int
    called: bool
    kept_bytes: int
    """Activations that stay until the backward."""
    recomputed: bool
    again_bytes: int
    """Activations that a recompute makes anew."""


def module_rows(
    model: nn.Module,
    trace: Trace,
    regions: Regions = (),
    joined: Collection[nn.Module] = (),
) -> list[ModuleRow]:
    """The modules of ``model`` in the order of the tree; names are those of ``named_modules()``.

    Without a trace modules count as called in the order of their registration. ``regions`` keep
    the input of their first module alone, and run forward once more in their backward. Modules that
    are ``joined`` go where the nearest one above them goes that is not.
    """
    keeps_input = {region[0] for region in regions}
    recomputed = {module for region in regions for module in region}
    names = {module: name for name, module in model.named_modules()}
    parents = _Parents(model, trace)
    rows: list[ModuleRow] = []
    numbers: dict[nn.Module, int] = {}

    def add(module: nn.Module, parent: int, inside: bool = False) -> None:
        seen = trace.seen.get(module)
        kept = _activation_bytes(seen, trace.memory_usage)
        again_bytes = 0
        if inside or module in recomputed:
            again_bytes = kept
            kept = seen.input_bytes if seen and not inside and module in keeps_input else 0
            inside = True
        called = seen is not None or (trace.empty and not isinstance(module, _CONTAINERS))
        called = (called and module not in joined) or parent < 0
        number = numbers[module] = len(rows)
        rows.append(ModuleRow(module, names[module], parent, called, kept, inside, again_bytes))
        for child in _execution_order(list(module.children()), trace):
            if child not in numbers and parents.takes(module, child):
                add(child, number, inside)

    add(model, -1)
    for name, module in model.named_modules():
        if module not in numbers:  # its caller is below itself
            add(module, numbers[model.get_submodule(name.rpartition(".")[0])])
    return rows


def flow_rows(trace: Trace, rows: Sequence[ModuleRow]) -> list[tuple[int, int, list[int]]]:
    """Tensors that pass between modules: bytes, who makes them, and who reads them."""
    # The step's own code runs where the root does.
    numbers: dict[nn.Module | None, int] = {row.module: n for n, row in enumerate(rows)}
    numbers[None] = 0
    return [
        (flow.bytes, numbers[flow.producer], [numbers[module] for module in flow.consumers])
        for flow in trace.flows
        if flow.consumers
    ]


def module_tree(
    model: nn.Module,
    trace: Trace,
    pins: Callable[[nn.Module], int | None],
    regions: Regions = (),
    joined: Collection[nn.Module] = (),
) -> _runtime.ModuleTree:
    """The tree of ``model`` for a partitioner, of its ``module_rows``."""
    tree = _runtime.ModuleTree()
    parameter_ids: dict[nn.Parameter, int] = {}
    for name, parameter in model.named_parameters():
        parameter_ids[parameter] = tree.add_parameter(name, parameter.nbytes)
    rows = module_rows(model, trace, regions, joined)
    for row in rows:
        module, seen = row.module, trace.seen.get(row.module)
        time_ns = seen.time_ns if seen else 0
        tree.add_module(
            name=row.name,
            parameters=[parameter_ids[p] for p in module._parameters.values() if p is not None],
            activation_bytes=row.kept_bytes,
            time_ns=time_ns,
            recompute_ns=time_ns if row.recomputed else 0,
            recomputed_bytes=row.again_bytes,
            input_bytes=seen.input_bytes if seen else 0,
            output_bytes=seen.output_bytes if seen else 0,
            calls=seen.calls if seen else 1,
            called=row.called,
            pin=pins(module),
            passes_on=passes_on(module),
            parent=row.parent,
        )
    for size, producer, readers in flow_rows(trace, rows):
        tree.add_tensor(size, producer, readers)
    return tree


def passes_on(module: nn.Module) -> bool:
    """True if children hand their results to each other, as the pipeline routes them."""
    return type(module).forward is nn.Sequential.forward


def recompute_bytes(trace: Trace, regions: Regions) -> int:
    """Bytes that the largest of ``regions`` keeps during its recompute, beside what others keep."""

    def bytes_of(region: Sequence[nn.Module]) -> int:
        parts = (part for module in region for part in module.modules())
        return sum(_activation_bytes(trace.seen.get(part), trace.memory_usage) for part in parts)

    return max(map(bytes_of, regions), default=0)


def _activation_bytes(seen: Seen | None, measured: bool) -> int:
    """Activation bytes of one module, without its children's."""
    if seen is None:
        return 0
    return seen.saved_bytes if measured else max(0, seen.output_bytes - seen.child_output_bytes)

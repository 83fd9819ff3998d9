# SPDX-License-Identifier: Apache-2.0
"""The profile of a model for the planner: what running its modules takes, counted on shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._partition.module_trees import (
    ModuleRow,
    flow_rows,
    module_rows,
    passes_on,
    recompute_bytes,
)
from smdistributed.modelparallel.torch._partition.parameter_readers import joined_modules
from smdistributed.modelparallel.torch._partition.trace_recorder import Work
from smdistributed.modelparallel.torch._partition.tracing import Trace
from smdistributed.modelparallel.torch._recompute.activation_checkpointing import regions_of
from smdistributed.modelparallel.torch._sharding.model_blocks import find_blocks
from smdistributed.modelparallel.torch._tensor.tensor_replacement import registrations_with

Profile = dict[str, Any]
"""As planner/plan_document.h reads it."""

_MOST_TENSOR_RANKS = 64
#: Tensors that an optimizer keeps for each parameter, by a part of its class's name.
_MOMENTS = (
    *(("adafactor", 0), ("adagrad", 1), ("rmsprop", 1), ("lion", 1), ("muon", 1)),
    *(("asgd", 1), ("sgd", 0), ("adadelta", 2), ("rprop", 2)),
)
_MOMENTS_OF_OTHERS = 2  # Adam's


@dataclass
class SplitModules:
    """Names of the modules that tensor ranks would split, by degree, and the classes with heads."""

    names: dict[int, list[str]] = field(default_factory=dict)
    transformers: set[str] = field(default_factory=set)


def split_modules(root: nn.Module) -> SplitModules:
    """By the annotations of a script, before anything is replaced."""
    found = SplitModules()
    degree = 2
    while degree <= _MOST_TENSOR_RANKS:
        registrations = registrations_with(root, degree)
        if not registrations:
            break
        found.names[degree] = list(registrations)
        found.transformers |= {
            name
            for name, registration in registrations.items()
            if "num_attention_heads" in getattr(registration.dist_module, "divided_sizes", ())
        }
        degree *= 2
    return found


def moments_of(optimizer: torch.optim.Optimizer | None) -> int:
    """
    >>> moments_of(torch.optim.SGD([torch.zeros(1)], lr=0.1, momentum=0.9))
    1
    >>> moments_of(None)
    2
    """
    if optimizer is None:
        return _MOMENTS_OF_OTHERS
    name = type(optimizer).__name__.lower()
    found = next((number for part, number in _MOMENTS if part in name), _MOMENTS_OF_OTHERS)
    return found + (1 if optimizer.defaults.get("momentum") and found < 1 else 0)


def profile_of(
    root: nn.Module,
    trace: Trace,
    samples: int,
    optimizer: torch.optim.Optimizer | None,
    split: SplitModules,
) -> Profile:
    """The profile of ``root``, of which ``trace`` saw a step with all ``samples`` of a batch; an
    empty one saw none."""
    own_regions = regions_of(root)
    joined = joined_modules(root, trace.reads)
    rows = module_rows(root, trace, own_regions, joined)
    parameters = dict(root.named_parameters())
    numbers = {parameter: number for number, parameter in enumerate(parameters.values())}
    first = split.names.get(2, [])
    exchanges = _exchanges(root, trace, first, split.transformers)
    trained = [parameter for parameter in parameters.values() if parameter.requires_grad]
    return {
        "modules": [
            {
                "name": row.name,
                "parent": row.parent,
                "parameters": [
                    numbers[p] for p in row.module._parameters.values() if p is not None
                ],
                "input_bytes": seen.input_bytes if (seen := trace.seen.get(row.module)) else 0,
                "output_bytes": seen.output_bytes if seen else 0,
                "calls": seen.calls if seen else 1,
                "called": row.called,
                "passes_on": passes_on(row.module),
                "work": _work_rows(row, trace),
                "is_split": _is_below(row.name, first),
                "exchanged_bytes": exchanges.get(row.name, 0),
            }
            for row in rows
        ],
        "parameters": [
            {
                "name": name,
                "elements": parameter.numel(),
                "bytes": parameter.nbytes,
                "is_split": parameter.dim() > 1 and _is_below(name, first),
                "trains": parameter.requires_grad,
            }
            for name, parameter in parameters.items()
        ],
        "tensors": [
            {"bytes": size, "producer": producer, "consumers": readers}
            for size, producer, readers in flow_rows(trace, rows)
        ],
        "recomputations": _recomputations(root, trace, own_regions, joined),
        "batch": samples,
        "element_bytes": next((p.element_size() for p in trained if p.is_floating_point()), 4),
        "optimizer": type(optimizer).__name__ if optimizer is not None else "",
        "moments": moments_of(optimizer),
        "tensor_degrees": list(split.names),
        "is_counted": not trace.empty,
    }


def _work_rows(row: ModuleRow, trace: Trace) -> list[list[float]]:
    seen = trace.seen.get(row.module)
    work: Counter[Work] = Counter(seen.work if seen else {})
    if row.parent < 0 and trace.outside is not None:  # the step's own code runs where the root does
        work += trace.outside.work
    return [[one.flops, one.bytes, one.parameter_bytes, count] for one, count in work.items()]


def _is_below(name: str, tops: Collection[str]) -> bool:
    return any(top in ("", name) or name.startswith(f"{top}.") for top in tops)


def _exchanges(
    root: nn.Module, trace: Trace, tops: Collection[str], transformers: Collection[str]
) -> dict[str, int]:
    """Bytes that tensor ranks hand each other at modules, forward: of a pair of layers what comes
    in and goes out, and of a layer of a transformer, which has two pairs, twice that."""
    names = {module: name for name, module in root.named_modules()}
    blocks = [names[module] for module in find_blocks(root).repeated]
    found: dict[str, int] = {}
    for top in tops:
        inner = [name for name in blocks if name != top and _is_below(name, [top])]
        for name in inner or [top]:
            seen = trace.seen.get(root.get_submodule(name))
            pairs = 2 if inner or top in transformers else 1
            found[name] = pairs * (seen.input_bytes + seen.output_bytes) if seen else 0
    return found


# --- What the backward recomputes ---


def _recomputations(
    root: nn.Module,
    trace: Trace,
    own: Sequence[Sequence[nn.Module]],
    joined: Collection[nn.Module],
) -> list[dict[str, Any]]:
    """The script's own first, then what it could ask for."""
    names = {module: name for name, module in root.named_modules()}
    blocks = [m for m in find_blocks(root).repeated if m in trace.seen]
    ways: list[tuple[str, str, Sequence[Sequence[nn.Module]]]] = [("script", "", own)]
    if own:
        ways.append(("none", "leave out smp.set_activation_checkpointing", []))
    if blocks:
        ways.append(("blocks", _marking([names[m] for m in blocks]), [[m] for m in blocks]))
    everything = _regions_of_all(root, trace, set(blocks))
    if everything and everything != blocks:
        marked = _marking([names[m] for m in everything])
        ways.append(("all", marked, [[m] for m in everything]))
    result = []
    for name, change, regions in ways:
        rows = module_rows(root, trace, regions, joined)
        kept = [row.kept_bytes for row in rows]
        if trace.outside is not None:
            kept[0] += trace.outside.saved_bytes
        result.append(
            {
                "name": name,
                "change": change,
                "kept_bytes": kept,
                "recomputed": [row.recomputed for row in rows],
                "once_bytes": recompute_bytes(trace, regions),
            }
        )
    return result


def _regions_of_all(
    module: nn.Module, trace: Trace, blocks: Collection[nn.Module]
) -> list[nn.Module]:
    """Blocks, and of the rest the largest modules that ran and hold none."""
    if module in blocks:
        return [module]
    children = list(module.children())
    holds_block = any(part in blocks for part in module.modules())
    is_root = trace.seen.get(module) is None or trace.seen[module].caller is None
    if not holds_block and not is_root:
        return [module]
    return [part for child in children for part in _regions_of_all(child, trace, blocks)]


def _marking(names: Sequence[str]) -> str:
    """Lines of a script that mark these modules: lists are gone through.

    >>> print(_marking(["h.0", "h.1", "head"]))
    for block in model.get_module().h: smp.set_activation_checkpointing(block)
    smp.set_activation_checkpointing(model.get_module().head)
    """
    lists: dict[str, int] = Counter(
        name.rpartition(".")[0] for name in names if name.rpartition(".")[2].isdigit()
    )
    lines: dict[str, None] = {}
    for name in names:
        above, *_ = name.rpartition(".")
        if lists.get(above, 0) > 1:
            lines[f"for block in {_path(above)}: smp.set_activation_checkpointing(block)"] = None
        else:
            lines[f"smp.set_activation_checkpointing({_path(name)})"] = None
    return "\n".join(lines)


def _path(name: str) -> str:
    plain = "model.get_module()"
    if any(part.isdigit() for part in name.split(".")):
        return f'{plain}.get_submodule("{name}")'
    return f"{plain}.{name}" if name else plain


def state_bytes(profile: Mapping[str, Any]) -> tuple[int, int]:
    """Parameters of a model, and what one copy of its training state takes without sharding."""
    elements = sum(one["elements"] for one in profile["parameters"])
    each = [
        one["bytes"] * (2 + profile["moments"] if one["trains"] else 1)
        for one in profile["parameters"]
    ]
    return elements, sum(each)

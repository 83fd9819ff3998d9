# SPDX-License-Identifier: Apache-2.0
"""Questions to the planner about a profiled model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from smdistributed import _runtime
from smdistributed.modelparallel.torch._partition.tracing import TraceOptions, trace_step
from smdistributed.modelparallel.torch._planning.answer_text import (
    OF_PLACES,
    answer_text,
    settings_to_paste,
)
from smdistributed.modelparallel.torch._planning.machines import read_measurements
from smdistributed.modelparallel.torch._planning.profiles import Profile, SplitModules, profile_of
from smdistributed.modelparallel.torch._planning.shapes_only import SHAPES_UNKNOWN
from smdistributed.modelparallel.torch.exceptions import (
    SMPUnsupportedError,
    SMPValidationError,
)

SHOWN = 10


def ask(
    profile: Profile,
    machines: Mapping[str, Any],
    *,
    fixed: Mapping[str, Any],
    run: Mapping[str, Any] | None = None,
    precision: str = "",
    explain: Mapping[str, Any] | None = None,
    checkpointing: str = "script",
    count: int = SHOWN,
) -> dict[str, Any]:
    """The planner's answer as planner/plan_document.h has it.

    ``run`` is a job of the script (reports.run_of), by which the planner calibrates first.
    ``fixed`` are settings of the job, of which it keeps those that it does not choose. It tries
    the number format ``precision``, fp16 or bf16; or, where that is empty, on GPUs 16 bits beside
    what the script does. Raises SMPConfigError for what rules refuse in ``explain``.
    """
    kept = {key: value for key, value in fixed.items() if key not in OF_PLACES}
    question: dict[str, Any] = {
        "profile": profile,
        "machines": machines,
        "fixed": kept,
        "formats": _formats(profile, machines, precision),
        "count": count,
    }
    if run is not None:
        question["run"] = run
    if explain is not None:
        question |= {"explain": dict(explain), "checkpointing": checkpointing}
    answer: dict[str, Any] = json.loads(_runtime.answer_plan(json.dumps(question)))
    return answer


def _formats(profile: Profile, machines: Mapping[str, Any], precision: str) -> list[str]:
    device = machines["device"]
    if precision:
        return [precision]
    if not device["is_gpu"] or profile["element_bytes"] != 4:
        return ["fp32"]
    return ["fp32", "bf16" if device["has_bfloat16"] else "fp16"]


@dataclass(frozen=True)
class Suggestion:
    """The planner's answer on a model; as text it is the table that ``train --suggest`` prints."""

    answer: dict[str, Any]
    """As ``train --suggest --json`` prints it."""

    @property
    def settings(self) -> dict[str, Any] | None:
        """``mp_parameters`` of the fastest that fits; None where nothing does."""
        best = self.answer["best"]
        return settings_to_paste(best[0], {}) if best else None

    def __str__(self) -> str:
        return answer_text(self.answer, {}, "the model")


def suggest(
    model: nn.Module,
    batch: Any,
    *,
    hosts: int = 1,
    instance_type: str | None = None,
    measured: str | os.PathLike[str] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> Suggestion:
    """Suggests settings for training ``model``, in a notebook, before ``smp.init`` and without a
    GPU. Not in the published library. Nothing is computed: only shapes pass through the model.

    Args:
        model: plain, not wrapped.
        batch: what its forward takes in a step of one replica: a tensor, or a tuple or a mapping of
            them. Its first tensor's first axis is the number of samples. The loss is taken to be
            cheap beside the model.
        hosts: of the job.
        instance_type: of the hosts, such as ``ml.p4d.24xlarge``.
        measured: a file of ``train --check --json`` in its place; or the report of a job of this
            model, ``report.html``, whose step the speeds are fitted to. A report knows its
            ``instance_type`` where ``train`` did, otherwise it is to be given, too.
        optimizer: the one that is to step it; unless given, two moments a parameter, as Adam's.

    Raises:
        SMPConfigError: an instance type that is not known, neither it nor ``measured``, or a file
            that is no such thing.
        SMPValidationError: a model that is none, or a batch without a tensor.
        SMPUnsupportedError: shapes that depend on values.

    >>> import smdistributed.modelparallel.torch as smp
    >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    >>> found = smp.suggest(model, torch.zeros(32, 64), instance_type="ml.g5.12xlarge")
    >>> found.settings["ddp"]
    True
    """
    if not isinstance(model, nn.Module):
        raise SMPValidationError(f"smp.suggest got {type(model).__name__}; expected an nn.Module")
    first = next((leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)), None)
    if first is None or first.dim() == 0:
        raise SMPValidationError("smp.suggest got a batch without a tensor whose axis has samples")
    files = [] if measured is None else [Path(measured)]
    known = read_measurements(files, instance_type, hosts, None)

    def run() -> Any:
        if isinstance(batch, Mapping):
            return model(**batch)
        return model(*batch) if isinstance(batch, tuple) else model(batch)

    try:
        trace = trace_step(model, run, TraceOptions(device="meta", memory_usage=True))
    except SHAPES_UNKNOWN as error:
        raise SMPUnsupportedError(
            f"smp.suggest: the shapes of the model's tensors depend on their values: {error}"
        ) from error
    profile = profile_of(model, trace, len(first), optimizer, SplitModules())
    return Suggestion(ask(profile, known.machines, fixed={}, run=known.run))

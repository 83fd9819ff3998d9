# SPDX-License-Identifier: Apache-2.0
"""Questions to the planner about a profiled model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._planning.profiles import Profile

_SHOWN = 10
#: Settings without an effect on where a model goes, which one process cannot have.
_OF_PLACES = ("ddp_port", "load_partition", "partition_file", "auto_partition", "default_partition")


def ask(
    profile: Profile,
    machines: Mapping[str, Any],
    *,
    fixed: Mapping[str, Any],
    precision: str = "",
    explain: Mapping[str, Any] | None = None,
    checkpointing: str = "script",
) -> dict[str, Any]:
    """The planner's answer as planner/plan_document.h has it.

    ``fixed`` are settings of the job, of which it keeps those that it does not choose. It tries
    the number format ``precision``, fp16 or bf16; or, where that is empty, on GPUs 16 bits beside
    what the script does. Raises SMPConfigError for what rules refuse in ``explain``.
    """
    kept = {key: value for key, value in fixed.items() if key not in _OF_PLACES}
    question: dict[str, Any] = {
        "profile": profile,
        "machines": machines,
        "fixed": kept,
        "formats": _formats(profile, machines, precision),
        "count": _SHOWN,
    }
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

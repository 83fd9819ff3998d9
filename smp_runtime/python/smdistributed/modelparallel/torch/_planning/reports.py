# SPDX-License-Identifier: Apache-2.0
"""An earlier run of a script, by its report: what the planner calibrates by."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._planning.answer_text import OF_PLACES, settings_of
from smdistributed.modelparallel.torch.exceptions import SMPConfigError

Report = dict[str, Any]

_PARTS = {
    "computing": "compute",
    "waiting": "wait",
    "gathering": "gather",
    "reducing": "reduce",
    "exchanging": "exchange",
    "updating": "optimizer",
}
"""Parts of a predicted step, and the shares of a measured one."""


def report_in(text: str) -> Report | None:
    """The report that a page or its JSON has; None for what is no report.

    >>> report_in('<script id="job">{"card": {}, "ranks": []}</script>')
    {'card': {}, 'ranks': []}
    >>> report_in('{"check": {}}') is None
    True
    """
    page = re.search(r'id="job">(.*?)</script>', text, re.DOTALL)
    try:
        found = json.loads(page[1] if page else text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and {"card", "ranks"} <= found.keys() else None


def run_of(report: Report, name: str) -> dict[str, Any]:
    """The run of ``report`` as planner/plan_document.h reads it. ``name`` is for messages.

    Raises SMPConfigError for a report from which nothing can be learnt: of a job that did not use
    the library or took no step, or whose steps were also evaluations.
    """
    ranks = [rank for rank in report["ranks"] if rank["steps"] > 0]
    facts = report["card"].get("facts") or {}
    if not ranks or "settings" not in facts:
        raise SMPConfigError(f"--measured {name}: the report has no steps of smp.step")
    missing = facts["ranks"] - len(ranks)
    if missing:
        raise SMPConfigError(
            f"--measured {name}: the report is without the steps of {missing} ranks"
        )
    if any(rank.get("trained", rank["steps"]) != rank["steps"] for rank in ranks):
        raise SMPConfigError(
            f"--measured {name}: some of the steps only evaluated, which take less time; give the "
            "report of a run that trains alone"
        )
    by_host: dict[str, int] = {}
    for rank in ranks:
        by_host[rank["host"]] = by_host.get(rank["host"], 0) + 1
    on_cpus = facts.get("device") == "CPU"
    return {
        "hosts": len(by_host),
        "ranks_a_host": max(by_host.values()),
        "settings": _changed(facts["settings"]),
        "batch": next((r.get("samples_a_step", 0) for r in ranks if r["stage"] == 0), 0),
        "step_seconds": _mean(rank["step_ms"] * (1 - rank["shares"]["data"]) for rank in ranks),
        "times": {"recomputing": 0.0}
        | {
            part: _mean(rank["step_ms"] * rank["shares"][share] for rank in ranks)
            for part, share in _PARTS.items()
        },
        "activation_bytes": max(rank["memory_kinds"].get("activations", 0) for rank in ranks)
        if on_cpus
        else 0,
    }


def _mean(milliseconds: Iterable[float]) -> float:
    return 1e-3 * statistics.fmean(milliseconds)


def _changed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are not the defaults, as somebody would write them."""
    defaults = settings_of(_runtime.make_parallel_config("", "defaults", "{}", "defaults"))
    return {
        key: value
        for key, value in settings.items()
        if key not in OF_PLACES and key in defaults and value != defaults[key]
    }


def type_of_hosts(report: Report) -> str:
    """The instance type of the hosts; empty where the job's tree did not say."""
    types = {str(host.get("instance_type", "")) for host in report["hosts"]} - {"", "local"}
    return types.pop() if len(types) == 1 else ""


def processors_of(report: Report) -> tuple[int, int]:
    """Processors and bytes of memory of a host; zeros where ``train`` did not start the ranks."""
    hosts = report["hosts"]
    processors = min((int(host.get("processors", 0)) for host in hosts), default=0)
    return processors, min((int(host["memory_total"]) for host in hosts), default=0)

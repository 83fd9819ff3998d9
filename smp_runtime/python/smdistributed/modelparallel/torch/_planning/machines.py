# SPDX-License-Identifier: Apache-2.0
"""The machines that a job is planned for: of a type of the table, or as a check measured them."""

from __future__ import annotations

import contextlib
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._planning.reports import (
    Report,
    processors_of,
    report_in,
    run_of,
    type_of_hosts,
)
from smdistributed.modelparallel.torch.exceptions import SMPConfigError

Machines = dict[str, Any]
"""As planner/plan_document.h reads them."""

# Of a processor, to which a run is compared where nothing else was measured.
_CPU_FLOPS, _CPU_LINK = 3e10, {"bytes_per_second": 1e9, "latency_seconds": 1e-4}
# Of a processor, which `train --check` does not measure: an interpreter starts an operation of
# torch in some microseconds, and one thread reads and writes some gigabytes a second.
_CPU_OPERATION_SECONDS = 15e-6
_CPU_BYTES_PER_SECOND = 8e9


@dataclass(frozen=True)
class Measurement:
    """What is known of the machines."""

    machines: Machines
    run: dict[str, Any] | None = None
    """A job of the script on them or on others of their kind; None: no report was given."""


def read_measurements(
    files: Sequence[Path], instance_type: str | None, hosts: int | None, processes: int | None
) -> Measurement:
    """The machines of a type or of what a check measured, and a run of the script on such machines.

    ``files``: at most one with the output of ``train --check --json`` or of ``--suggest --json``,
    which has machines, and at most one report. Without machines and a type those of the report
    count. ``hosts`` and ``processes``, where given, in place of the measured numbers.

    Raises SMPConfigError, which names the file, for anything else.
    """
    reports, others = _by_kind(files)
    if len(others) > 1 or len(reports) > 1:
        raise SMPConfigError("--measured: expected one file of a check and one report at most")
    if instance_type is not None and others:
        raise SMPConfigError("expected one of --instance-type and a check's --measured FILE")
    run = None
    for file, report in reports:
        run = run_of(report, str(file))
        if instance_type is None and not others:
            instance_type = type_of_hosts(report)
        hosts, processes = hosts or run["hosts"], processes or run["ranks_a_host"]
    if others:
        machines = measured_machines(others[0], hosts)
        machines["ranks_a_host"] = processes or machines["ranks_a_host"]
    elif instance_type:
        machines = machines_of_type(instance_type, hosts or 1, processes)
    elif run is not None:
        machines = _processors(*reports[0], run) | {"hosts": hosts, "ranks_a_host": processes}
    else:
        raise SMPConfigError("expected --instance-type or --measured: the machines' speeds")
    if reports:
        machines["source"] += f", changed to those of the run in {reports[0][0]}"
        machines["is_measured"] = True
    return Measurement(machines, run)


def _by_kind(files: Sequence[Path]) -> tuple[list[tuple[Path, Report]], list[Path]]:
    """Reports, and what is none."""
    reports, others = [], []
    for file in files:
        try:
            report = report_in(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SMPConfigError(f"--measured {file}: {error}") from error
        if report is None:
            others.append(file)
        else:
            reports.append((file, report))
    return reports, others


def _processors(file: Path, report: Report, run: dict[str, Any]) -> Machines:
    """Hosts without GPUs that are known by a report alone: the run tells how fast they are."""
    processors, memory = processors_of(report)
    if report["card"]["facts"].get("device") != "CPU" or processors == 0:
        raise SMPConfigError(
            f"--measured {file}: the report does not say of which type its hosts were; give their "
            "--instance-type, or the output of train --check --json as well"
        )
    between = _CPU_LINK if run["hosts"] > 1 else {"bytes_per_second": 0, "latency_seconds": 0}
    return {
        "hosts": run["hosts"],
        "ranks_a_host": run["ranks_a_host"],
        "processors": processors,
        "device": _cpu(_CPU_FLOPS, memory // run["ranks_a_host"]),
        "inside": _CPU_LINK,
        "between": between,
        "source": "of common processors",
        "is_measured": False,
    }


def _cpu(flops: float, memory: int) -> dict[str, Any]:
    return {
        "name": "CPU",
        "is_gpu": False,
        "memory_bytes": memory,
        "flops_32": flops,
        "flops_16": 0,
        "has_bfloat16": True,
        "bytes_per_second": _CPU_BYTES_PER_SECOND,
        "host_bytes_per_second": 0,
        "operation_seconds": _CPU_OPERATION_SECONDS,
    }


def machines_of_type(name: str, hosts: int, processes: int | None) -> Machines:
    """Raises SMPConfigError for a type that is not in the table, or more processes than GPUs."""
    machines: Machines = json.loads(_runtime.instance_machines(name, hosts))
    if processes is not None and processes > machines["ranks_a_host"]:
        raise SMPConfigError(
            f"{processes} processes on a host of type {name}, which has "
            f"{machines['ranks_a_host']} GPUs; the planner gives each process one"
        )
    machines["ranks_a_host"] = processes or machines["ranks_a_host"]
    return machines


def measured_machines(file: Path, hosts: int | None) -> Machines:
    """The machines of a file with the output of ``train --check --json``, or with that of ``train
    --suggest --json``, which names those that it took. ``hosts``, where given, in place of the
    measured number."""
    try:
        document = _document(file.read_text(encoding="utf-8"))
        machines: Machines = document.get("machines") or of_check(document["check"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SMPConfigError(
            f"--measured {file}: {error}; expected the output of train --check --json"
        ) from error
    if hosts is not None:
        if hosts > 1 and machines["between"]["bytes_per_second"] <= 0:
            raise SMPConfigError(f"--measured {file} has one host, and nothing between hosts")
        machines["hosts"] = hosts
    return machines


def _document(text: str) -> dict[str, Any]:
    """The last object in the lines of ``text``, which may begin with the name of a rank.

    >>> _document('a log line\\n[0]: {"check": {}}\\n')
    {'check': {}}
    """
    rows = [line[line.index("{") :] for line in text.splitlines() if "{" in line]
    whole: dict[str, Any] = json.loads(text) if text.lstrip().startswith("{") else {}
    for row in rows if not whole else ():
        with contextlib.suppress(ValueError):
            whole = json.loads(row)
    return whole


def of_check(numbers: dict[str, Any]) -> Machines:
    """The machines whose ``Numbers`` a check has measured: medians of ranks and links."""
    facts = numbers["facts"]
    by_host: dict[str, list[dict[str, Any]]] = {}
    for one in facts:
        by_host.setdefault(one["host"], []).append(one)
    is_gpu = "cuda" in numbers["within"] or "cuda" in numbers["across"]
    kind = "cuda" if is_gpu else "cpu"
    ranks, processors = len(next(iter(by_host.values()))), facts[0]["cpus"]
    flops = statistics.median(one["flops"] for one in facts)
    if is_gpu:
        raise SMPConfigError(
            "a check of GPUs does not measure their memory; give their --instance-type"
        )
    return {
        "hosts": len(by_host),
        "ranks_a_host": ranks,
        "processors": processors,
        # All ranks were measured at the same time, on the processors that they share.
        "device": _cpu(flops * max(1.0, ranks / processors), _host_memory() // ranks),
        "inside": _link(numbers["within"].get(kind, [])),
        "between": _link(numbers["across"].get(kind, [])),
        "source": "measured by train --check",
        "is_measured": True,
    }


def _link(links: list[dict[str, Any]]) -> dict[str, float]:
    if not links:
        return {"bytes_per_second": 0, "latency_seconds": 0}
    return {
        "bytes_per_second": statistics.median(link["bytes_per_second"] for link in links),
        "latency_seconds": statistics.median(link["latency"] for link in links),
    }


def _host_memory() -> int:
    """Memory of this host [bytes]; 0 where /proc does not say."""
    try:
        first = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return 0
    return int(first.split()[1]) * 1024

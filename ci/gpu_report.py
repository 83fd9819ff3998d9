# SPDX-License-Identifier: Apache-2.0
"""`ci/gpu report`: results of stages as tables, and kept with the commit that they belong to."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs" / "gpu_results.jsonl"


def report(words: list[str]) -> int:
    """Prints the results of the folders; 1 if one of their stages did not pass."""
    parser = argparse.ArgumentParser(prog="ci/gpu report")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("out", type=Path, nargs="+")
    options = parser.parse_args(words)
    results: list[dict[str, Any]] = []
    for folder in options.out:
        file = folder / "results.jsonl"
        if not file.exists():
            raise SystemExit(
                f"ci/gpu report: {file} is not there; name folders that ci/gpu remote wrote"
            )
        results += [json.loads(line) for line in file.read_text().splitlines()]
    print(as_markdown(results))
    if options.record:
        record(results)
    return 0 if all(result["state"] == "passed" for result in results) else 1


def record(results: list[dict[str, Any]]) -> None:
    """Appends them; of runs of a changed tree or without a GPU nothing is kept."""
    kept = []
    for result in results:
        if result["commit"].endswith("+") or result["device"].startswith("CPU"):
            print(
                f"not recorded: {result['stage']} of {result['commit']} on {result['device']}; "
                "only results of a commit on a GPU are",
                file=sys.stderr,
            )
            continue
        kept.append({"date": datetime.date.today().isoformat(), **result})
    with RECORD.open("a") as file:
        for result in kept:
            file.write(json.dumps(result) + "\n")


def as_markdown(results: list[dict[str, Any]]) -> str:
    """The stages, then what those that measure found.

    >>> print(as_markdown([{"stage": "nccl", "state": "failed", "seconds": 3.2, "limit": 20,
    ...     "commit": "abc", "device": "H200", "reason": "no word", "found": {"passed": 2}}]))
    | stage | result | seconds | commit | device | |
    | --- | --- | --- | --- | --- | --- |
    | nccl | failed | 3 of 20 | abc | H200 | passed 2; no word |
    """
    rows = [
        (
            result["stage"],
            result["state"],
            f"{result['seconds']:.0f} of {result['limit']}",
            result["commit"],
            result["device"],
            "; ".join(filter(None, [counts_of(result["found"]), result["reason"][:200]])),
        )
        for result in results
    ]
    parts = [table(("stage", "result", "seconds", "commit", "device", ""), rows)]
    makers = {"ceilings": ceilings, "kernels": kernels, "training": training}
    for result in results:
        if result["stage"] in makers and result["found"]:
            parts.append(
                f"### {result['stage']} ({result['device']}, commit {result['commit']})\n\n"
                + makers[result["stage"]](result["found"])
            )
    return "\n\n".join(parts)


def counts_of(found: dict[str, Any]) -> str:
    words = []
    for kind in ("passed", "failed", "skipped"):
        value = found.get(kind)
        if isinstance(value, list) and value:
            words.append(f"{kind} {len(value)} ({', '.join(value[:3])})")
        elif isinstance(value, int):
            words.append(f"{kind} {value}")
    return ", ".join(words)


def ceilings(found: dict[str, Any]) -> str:
    pinned = found["pinned_bytes_a_second"]
    return table(
        ("what", "rate"),
        [
            ("copy, bytes read and written", giga(found["copy_bytes_a_second"], "B/s")),
            ("product of bf16 matrices", giga(found["bf16_flops"], "flop/s")),
            ("pinned memory to GPU", giga(pinned["to_gpu"], "B/s")),
            ("GPU to pinned memory", giga(pinned["from_gpu"], "B/s")),
            ("a launch", f"{1e6 * found['launch_seconds']:.1f} µs"),
        ],
    )


def kernels(found: dict[str, Any]) -> str:
    rows = [
        (
            row["kernel"],
            giga(row["bytes_a_second"], "B/s"),
            f"{row['share_of_copy']:.0%}",
            f"{row['times_torch']:.2f}",
            "yes" if row["passes"] else "no",
        )
        for row in found["rows"]
    ]
    return table(("kernel", "rate", "of a copy", "times torch's time", "reaches the goal"), rows)


def training(found: dict[str, Any]) -> str:
    rows = [
        (row["case"], f"{1e3 * row['seconds']:.1f} ms", f"{row['ratio']:.3f}", row["against"],
         "" if row.get("goal") is None else f"≤ {row['goal']:g}")
        for row in found["rows"]
    ]  # fmt: skip
    return table(("case", "a step", "ratio", "against", "goal"), rows)


def giga(value: float, unit: str) -> str:
    """With a decimal prefix and three digits.

    >>> giga(4.32e12, "B/s"), giga(5.5e8, "B/s")
    ('4.32 TB/s', '550 MB/s')
    """
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def table(heading: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)

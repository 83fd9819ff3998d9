# SPDX-License-Identifier: Apache-2.0
"""`ci/gpu report`: results of stages as tables, and kept with the commit that they belong to."""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "docs" / "_data" / "gpu_results.jsonl"
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- tables: made by ci/gpu report --record -->\n", "<!-- end of tables -->\n"
FOLDERS = re.compile(r"(?<![\w/:])/(?:[\w.+-]+/)+")
#: Titles and columns of the tables of the stages that measure.
MEASURED: dict[str, tuple[str, tuple[str, ...]]] = {
    "ceilings": ("Ceilings", ("what", "rate")),
    "kernels": (
        "Kernels",
        ("kernel", "ours", "torch's", "of a copy", "times torch's time", "reaches the goal"),
    ),
    "training": (
        "Steps of GPT-2 medium",
        ("case", "ours", "against", "theirs", "ratio", "goal", "utilisation, ours and theirs",
         "waits of the host, ours and theirs"),
    ),
    "two_hosts": ("Two ranks on one card", ("way", "what", "time")),
}  # fmt: skip


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
    """Appends them, each once; of runs of a changed tree or without a GPU nothing is kept."""
    known = [{name: one[name] for name in one if name != "date"} for one in read_record()]
    kept = []
    for result in map(without_folders, results):
        if result in known:
            continue
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
    write_page()


def without_folders(result: dict[str, Any]) -> dict[str, Any]:
    """Paths in its texts become names: the folders of one machine tell nobody else anything.

    >>> without_folders({"reason": 'File "/opt/site/torch/init.py": see https://a.org/b/c'})
    {'reason': 'File "init.py": see https://a.org/b/c'}
    """
    return dict(json.loads(FOLDERS.sub("", json.dumps(result, ensure_ascii=False))))


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
    for result in results:
        if result["stage"] in MEASURED and result["found"]:
            parts.append(
                f"### {result['stage']} ({result['device']}, commit {result['commit']})\n\n"
                + figures(result, results)
            )
    return "\n\n".join(parts)


def figures(result: dict[str, Any], results: list[dict[str, Any]]) -> str:
    """Figures of a stage. Utilisation is by the product of matrices of the same machine, which is
    among the results of its ceilings."""
    found = result["found"]
    if result["stage"] == "ceilings":
        return ceilings(found)
    if result["stage"] == "kernels":
        return kernels(found)
    if result["stage"] == "two_hosts":
        return links(found)
    best = [
        one["found"]["bf16_flops"]
        for one in results
        if one["stage"] == "ceilings" and one["found"] and one["device"] == result["device"]
    ]
    return training(found, best[-1] if best else None)


def page(recorded: list[dict[str, Any]]) -> str:
    """The tables of docs/benchmarks.md: of each stage that measures the last result that passed.

    >>> print(page([])[:54])
    *Nothing of this has been measured yet.*
    <BLANKLINE>
    **Ceilings**
    """
    parts = []
    last = {r["stage"]: r for r in recorded if r["state"] == "passed" and r["found"]}
    if not last:
        parts.append("*Nothing of this has been measured yet.*")
    for stage, (title, heading) in MEASURED.items():
        if stage not in last:
            parts.append(f"**{title}**\n\n" + table(heading, [tuple("–" for _ in heading)]))
            continue
        one = last[stage]
        where = f"{one['device']}, commit {one['commit']}, {one['date']}"
        parts.append(f"**{title}** ({where})\n\n{figures(one, recorded)}")
    return "\n\n".join(parts)


def write_page() -> None:
    """Brings the tables of the documentation up to the record."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{page(read_record())}\n\n{END}{after}")


def read_record() -> list[dict[str, Any]]:
    if not RECORD.exists():
        return []
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


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
        MEASURED["ceilings"][1],
        [
            ("copy, bytes read and written", giga(found["copy_bytes_a_second"], "B/s")),
            ("product of bf16 matrices", giga(found["bf16_flops"], "flop/s")),
            ("pinned memory to GPU", giga(pinned["to_gpu"], "B/s")),
            ("GPU to pinned memory", giga(pinned["from_gpu"], "B/s")),
            ("a launch", f"{1e6 * found['launch_seconds']:.1f} µs"),
        ],
    )


def kernels(found: dict[str, Any]) -> str:
    reached = {True: "yes", False: "no", None: ""}
    rows = [
        (
            row["kernel"],
            giga(row["bytes_a_second"], "B/s"),
            giga(row["torch_bytes_a_second"], "B/s"),
            f"{row['share_of_copy']:.0%}",
            f"{row['times_torch']:.2f}",
            reached[row["passes"]],
        )
        for row in found["rows"]
    ]
    return table(MEASURED["kernels"][1], rows)


def training(found: dict[str, Any], product_rate: float | None) -> str:
    """``product_rate``: floating-point operations a second of the largest product."""

    def used(flops: float) -> str:
        return giga(flops, "flop/s") if product_rate is None else f"{flops / product_rate:.0%}"

    rows = [
        (
            row["case"],
            f"{1e3 * row['seconds']:.1f} ms",
            row["against"],
            f"{1e3 * row['peer_seconds']:.1f} ms",
            f"{row['ratio']:.3f}",
            "" if row.get("goal") is None else f"≤ {row['goal']:g}",
            f"{used(row['flops'])}, {used(row['peer_flops'])}",
            f"{row['waits']}, {row['peer_waits']}",
        )
        for row in found["rows"]
    ]
    return table(MEASURED["training"][1], rows)


def links(found: dict[str, Any]) -> str:
    rows = [
        (way, what, seconds if isinstance(seconds, str) else f"{1e6 * seconds:.0f} µs")
        for way, measured in found.items()
        for what, seconds in measured.items()
    ]
    return table(MEASURED["two_hosts"][1], rows)


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

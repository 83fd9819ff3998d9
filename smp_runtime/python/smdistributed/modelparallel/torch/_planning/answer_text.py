# SPDX-License-Identifier: Apache-2.0
"""The planner's answer for people."""

from __future__ import annotations

import json
from typing import Any

from smdistributed import _runtime

Answer = dict[str, Any]

_NOT_MODELLED = (
    "data loading, evaluation, saving, other jobs on the network, fragmentation of memory"
)


def answer_text(answer: Answer, asked: dict[str, Any], name: str) -> str:
    """A table of the best, the first as settings to paste, what changes it, and how sure all is."""
    lines = [f"{name}: {_machines(answer['machines'])}"]
    if "explained" in answer:
        return "\n".join([*lines, *_explained(answer["explained"]), *_sureness(answer)])
    if not answer["best"]:
        return "\n".join([*lines, _nothing_fits(answer), *_sureness(answer)])
    lines += [
        f"{len(answer['examined'])} of {answer['candidates']} compositions were predicted; best:",
        *_table(answer["best"]),
        "",
        *_first(answer["best"][0], asked),
        *_changes(answer),
        *_sureness(answer),
    ]
    return "\n".join(lines)


def settings_to_paste(row: Answer, asked: dict[str, Any]) -> dict[str, Any]:
    """``mp_parameters`` of a row; they say the default, too, where the script asks for another.

    >>> row = {"mp_parameters": {"microbatches": 2}}
    >>> settings_to_paste(row, {"pipeline_parallel_degree": 4, "microbatches": 8})
    {'microbatches': 2, 'pipeline_parallel_degree': 1}
    """
    chosen: dict[str, Any] = dict(row["mp_parameters"])
    defaults = settings_of(_runtime.make_parallel_config("", "defaults", "{}", "defaults"))
    for key in _CHOSEN:
        if key in asked and key not in chosen:
            chosen[key] = defaults[key]
    return chosen


def settings_of(config: _runtime.ParallelConfig) -> dict[str, Any]:
    """All settings by name, as JSON has them."""
    settings: dict[str, Any] = json.loads(config.as_json())
    return settings


def suggestion_record(settings: dict[str, Any], answer: Answer) -> Answer:
    """What a job with ``settings``, those of the best row, is compared with in its report: all
    that they set, the row, and candidates for a picture, the row first."""
    config = _runtime.make_parallel_config(json.dumps(settings), "suggestion", "{}", "none")
    best = answer["best"][0]
    others = [row for row in answer["examined"] if row != best]
    return {
        "format": 1,
        "settings": {k: v for k, v in settings_of(config).items() if k not in OF_PLACES},
        "predicted": best,
        "candidates": [{key: row[key] for key in _OF_CANDIDATES} for row in (best, *others)],
    }


#: Settings without an effect on where a model goes, which one process cannot have.
OF_PLACES = ("ddp_port", "load_partition", "partition_file", "auto_partition", "default_partition")
_OF_CANDIDATES = ("memory_bytes", "samples_per_second", "fits", "mp_parameters")
_CHOSEN = (
    "pipeline_parallel_degree",
    "tensor_parallel_degree",
    "sharded_data_parallel_degree",
    "microbatches",
    "pipeline",
    "shard_optimizer_state",
    "offload_activations",
)


def _machines(machines: Answer) -> str:
    hosts, ranks = machines["hosts"], machines["ranks_a_host"]
    several = "s" if hosts > 1 else ""
    return f"{hosts} host{several} x {ranks} {machines['device']['name']}"


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f}" if size < 100 * 2**30 else f"{size / 2**30:.0f}"


def _short(settings: dict[str, Any]) -> str:
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in settings.items()) or "(none)"


def _table(rows: list[Answer]) -> list[str]:
    cells = [("step s", "samples/s", "samples/step", "GiB/rank", "bound by", "settings")]
    for row in rows:
        how = "" if row["checkpointing"] == "script" else f"; checkpointing {row['checkpointing']}"
        cells.append(
            (
                f"{row['step_seconds']:.4g}",
                f"{row['samples_per_second']:.4g}",
                f"{row['samples_a_step']:.0f}",
                _gib(row["memory_bytes"]),
                row["bound"],
                _short(row["mp_parameters"]) + how,
            )
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  " + "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _first(row: Answer, asked: dict[str, Any]) -> list[str]:
    lines = ["mp_parameters of the first:", json.dumps(settings_to_paste(row, asked))]
    narrow = next((one for one in ("bf16", "fp16") if row["mp_parameters"].get(one)), None)
    if narrow is not None and not asked.get(narrow):
        lines.append(f"{narrow} computes other numbers than the script's 32 bits do")
    if row["change_of_script"]:
        lines += ["and in the script, behind smp.DistributedModel:", row["change_of_script"]]
    return lines


def _changes(answer: Answer) -> list[str]:
    lines = []
    for change in answer["changes"]:
        percent = 100 * (change["speed"] - 1)
        fit = "" if change["fits"] else ", and does not fit"
        lines.append(
            f"  {change['choice']}: {percent:+.1f} % samples/s, "
            f"{_gib(change['memory_bytes'])} GiB a rank{fit}"
        )
    return ["What one other choice does:", *lines] if lines else []


def _explained(row: Answer) -> list[str]:
    longest = sorted(row["times"].items(), key=lambda part: part[1], reverse=True)
    times = {what: seconds for what, seconds in longest if seconds > 0}
    memory = {what: size for what, size in row["memory"].items() if size > 0}
    return [
        *_table([row]),
        "a step: " + ", ".join(f"{what} {seconds:.4g} s" for what, seconds in times.items()),
        "memory of the fullest rank: "
        + ", ".join(f"{what} {_gib(size)} GiB" for what, size in memory.items())
        + ("" if row["fits"] else "; it does not fit"),
    ]


def _nothing_fits(answer: Answer) -> str:
    device = answer["machines"]["device"]
    text = (
        f"No composition fits: the smallest takes {_gib(answer['least_bytes'])} GiB a rank of "
        f"{_gib(device['memory_bytes'])}. "
    )
    needed = answer["hosts_needed"]
    if needed is None:
        return text + "Up to 1024 such hosts do not hold the model with this batch"
    return text + f"The smallest number of such hosts that holds the model: {needed}"


def _sureness(answer: Answer) -> list[str]:
    machines = answer["machines"]
    calibration = answer.get("calibration")
    lines = [] if calibration is None else _calibrated(calibration)
    how = (
        f"Speeds: {machines['source']}"
        if machines["is_measured"]
        else f"Speeds: {machines['source']}, of which programs reach a share that differs; the "
        "order is surer than the times"
    )
    return [*lines, f"{how}. Not modelled: {_NOT_MODELLED}"]


def _calibrated(calibration: Answer) -> list[str]:
    predicted, measured = calibration["predicted"], calibration["measured"]
    parts = [
        f"{what} {predicted['times'][what]:.4g} and {seconds:.4g} s"
        for what, seconds in measured["times"].items()
        if seconds > 0
    ]
    changes = (
        f"devices x {calibration['device_speed']:.3g}, links x {calibration['link_speed']:.3g}"
    )
    if calibration["activations"] != 1:
        changes += f", memory of activations x {calibration['activations']:.3g}"
    return [
        f"The measured run: a step of {predicted['step_seconds']:.4g} s was predicted, and it took "
        f"{measured['step_seconds']:.4g} s" + (f": {', '.join(parts)}" if parts else ""),
        f"Fitted to it: {changes}",
    ]

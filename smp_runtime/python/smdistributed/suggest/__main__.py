# SPDX-License-Identifier: Apache-2.0
"""Watches a script as far as its first step, and prints the settings that the planner suggests."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.torch._planning.answer_text import (
    answer_text,
    settings_to_paste,
    suggestion_record,
)
from smdistributed.modelparallel.torch._planning.machines import Measurement, read_measurements
from smdistributed.modelparallel.torch._planning.picture import picture
from smdistributed.modelparallel.torch._planning.suggestions import ask
from smdistributed.modelparallel.torch._planning.watched_script import watch_script
from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m smdistributed.suggest",
        description="Suggests settings of the model-parallel library for a training script. Runs "
        "it as one process, without a GPU, as far as its first step; trains nothing.",
    )
    parser.add_argument("--hosts", type=int, help="hosts of the job (1)")
    parser.add_argument("--instance-type", help="of the hosts, such as ml.p4d.24xlarge")
    parser.add_argument("--processes", type=int, help="on each host; all GPUs of a type")
    parser.add_argument("--measured", type=Path, action="append", default=[], metavar="FILE",
                        help="speeds: of train --check --json, and of a job of the script: its "
                        "report.html; once for each")  # fmt: skip
    parser.add_argument("--explain", metavar="JSON", help="predict these mp_parameters alone")
    parser.add_argument(
        "--checkpointing",
        default="script",
        help="with --explain: script, none, blocks or all (script)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object in place of text")
    parser.add_argument("--svg", type=Path, help="write memory against time as a picture")
    parser.add_argument("--write", type=Path, metavar="FILE",
                        help="put the first into this hyperparameters.json")  # fmt: skip
    parser.add_argument("--folder", type=Path, help="where the script runs (here)")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    return parser


def main(words: list[str]) -> int:
    parsed = _parser().parse_args(words)
    try:
        answer, asked = _answered(parsed)
    except SMPError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        return 1
    if parsed.svg is not None:
        parsed.svg.write_text(picture(answer["examined"]), encoding="utf-8")
    if parsed.write is not None and answer.get("best"):
        _write(parsed.write, settings_to_paste(answer["best"][0], asked), answer)
    if parsed.json:
        answer["to_paste"] = (
            settings_to_paste(answer["best"][0], asked) if answer.get("best") else None
        )
        print(json.dumps(answer))
    else:
        print(answer_text(answer, asked, parsed.script.name))
    return 0 if "explained" in answer or answer["best"] else 1


def _answered(parsed: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    measured = _measured(parsed)
    explain = None
    if parsed.explain is not None:
        if parsed.svg or parsed.write:
            raise SMPConfigError("--explain predicts one composition: no --svg, no --write")
        explain = _settings(parsed.explain)
    if not parsed.script.is_file():
        raise SMPConfigError(f"{parsed.script} is no file; expected a Python script")
    arguments = parsed.arguments[1:] if parsed.arguments[:1] == ["--"] else parsed.arguments
    watched = watch_script(parsed.script.resolve(), arguments, parsed.folder)
    answer = ask(
        watched.profile,
        measured.machines,
        fixed=watched.asked,
        run=measured.run,
        precision=watched.precision,
        explain=explain,
        checkpointing=parsed.checkpointing,
    )
    return answer, watched.asked


def _measured(parsed: argparse.Namespace) -> Measurement:
    if parsed.hosts is not None and parsed.hosts < 1:
        raise SMPConfigError(f"--hosts {parsed.hosts}; expected at least 1")
    if parsed.processes is not None and parsed.processes < 1:
        raise SMPConfigError(f"--processes {parsed.processes}; expected at least 1")
    return read_measurements(parsed.measured, parsed.instance_type, parsed.hosts, parsed.processes)


def _settings(text: str) -> dict[str, Any]:
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise SMPConfigError(f"--explain: {error}; expected mp_parameters as JSON") from error
    if not isinstance(settings, dict):
        raise SMPConfigError(f"--explain {text}: expected mp_parameters as a JSON object")
    return settings


def _write(file: Path, settings: dict[str, Any], answer: dict[str, Any]) -> None:
    """Values of that file are JSON inside text. Beside it is what the report compares with."""
    document = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    document["mp_parameters"] = json.dumps(settings)
    _replace(file, json.dumps(document, indent=2))
    _replace(file.with_name("suggestion.json"), json.dumps(suggestion_record(settings, answer)))


def _replace(file: Path, text: str) -> None:
    temporary = file.with_name(file.name + ".tmp")
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

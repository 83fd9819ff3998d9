# SPDX-License-Identifier: Apache-2.0
"""Runs a case with one launcher and notes all that a job, the service or a log reader could see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.differential.case import STUBS, Case, clean_folder
from tests.differential.reference import reference_python

LIMIT = 120  # [s] a run takes about half a second; this only ends what hangs

# Lines that users and tools search for (spec section 9).
KNOWN_LINES = (
    "Invoking user script",
    "Training Env:",
    "Environment variables:",
    "Invoking script with the following command:",
    "Reporting training SUCCESS",
    "Reporting training FAILURE",
    "Installing dependencies from requirements.txt",
    "Imported framework",
    "Invoking user training script.",
    "Invoking SMDataParallel",
    "Invoking TorchDistributed...",
    "Encountered exit_code",
)


@dataclass
class Started:
    """One program that a launcher started."""

    program: str
    argv: list[str]
    environment: dict[str, str]
    directory: str


@dataclass
class Observation:
    code: int
    succeeded: bool
    failure: str | None
    started: list[Started]
    user_out: list[str] = field(default_factory=list)
    user_err: list[str] = field(default_factory=list)
    known_lines: list[str] = field(default_factory=list)
    log: str = ""  # for the reader of a failed test
    planned: bool = False  # nothing ran: `started` and `code` are all there is


def observe(command: list[str], case: Case, folder: Path) -> Observation:
    """Runs the launcher on a fresh tree; the folder is the same for both, so that paths are."""
    base = folder / "opt_ml"
    case.make_tree(base)
    case.make_programs(folder / "bin")
    records = clean_folder(folder / "records")
    clean_folder(folder / "home")
    done = subprocess.run(
        command,
        env=case.job_environment(folder, reference_python()),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=LIMIT,
        cwd=folder,
    )
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    failure = base / "output" / "failure"
    return Observation(
        code=done.returncode,
        succeeded=(base / "output" / "success").exists(),
        failure=failure.read_text(errors="replace") if failure.exists() else None,
        started=[read_record(path) for path in sorted(records.iterdir())],
        user_out=user_lines(out),
        user_err=user_lines(err),
        known_lines=[line for line in KNOWN_LINES if line in err],
        log=out + err,
    )


def user_lines(output: str) -> list[str]:
    """Lines that the script printed; not those that a failure text repeats."""
    before = output.partition("Reporting training FAILURE")[0]
    return [line for line in before.splitlines() if line.startswith("user: ")]


def read_record(path: Path) -> Started:
    return Started(**json.loads(path.read_text(encoding="utf-8", errors="surrogateescape")))


def observe_reference(case: Case, folder: Path) -> Observation:
    return observe([str(reference_python()), str(STUBS / "reference_main.py")], case, folder)


def observe_ours(case: Case, folder: Path, train: Path) -> Observation:
    if not case.planned_only:
        return observe([str(train)], case, folder)
    seen = observe([str(train), "--plan", "--json"], case, folder)
    seen.planned = True
    if seen.code == 0:
        plan = json.JSONDecoder().raw_decode(seen.log)[0]
        seen.started = [planned(plan, case, folder)]
    return seen


def planned(plan: dict[str, object], case: Case, folder: Path) -> Started:
    """Process that a plan would start. One-host cases check that it is what is started."""
    environment = case.job_environment(folder, reference_python())
    for name in plan["unset"]:
        environment.pop(name, None)
    environment |= plan["environment"] | plan["host_environment"]
    argv = list(plan["argv"])
    program = os.path.basename(argv[0]) if argv else "worker"
    return Started(program, argv, environment, str(plan["working_directory"]))


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)

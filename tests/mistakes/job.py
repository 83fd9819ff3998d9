# SPDX-License-Identifier: Apache-2.0
"""Runs a mistake as a job of `train`, and notes what a user would see of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tests.free_port import free_port
from tests.launcher.jobs import ROOT, job_environment, train_binary
from tests.mistakes.case import BEGIN, Mistake, Setting

LIMIT = 60  # [s] after which a job that hangs is killed


@dataclass
class Seen:
    code: int
    seconds: float  # from the mistake to the job's end
    log: str
    failure: str | None

    @property
    def rank(self) -> int | None:
        """Rank whose failure is reported."""
        named = re.search(r"rank (\d+) on ", self.failure or "")
        return None if named is None else int(named[1])


def run(mistake: Mistake, setting: Setting, folder: Path, python: Path) -> Seen:
    """``python``: the interpreter of the script."""
    shutil.rmtree(folder, ignore_errors=True)
    code = folder / "code"
    code.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("script.py"), code)
    tree = folder / "job"
    subprocess.run(
        [train_binary(), "--make-tree", tree, "--copy", "--code", code, "--program", "script.py",
         *options(mistake, setting)],
        check=True, capture_output=True, text=True, timeout=LIMIT, cwd=folder,
    )  # fmt: skip
    return observe(mistake, tree, python)


def options(mistake: Mistake, setting: Setting) -> list[str]:
    plain = setting.parameters is None
    hyperparameters = [
        f"mistake={mistake.script.__module__}:{mistake.name}",
        f"setting={'plain' if plain else setting.name}",
    ]
    if not plain:
        parameters = json.dumps({**(setting.parameters or {}), **mistake.parameters})
        hyperparameters.append(f"mp_parameters={parameters}")
    if setting.processes > 1:
        hyperparameters.append("sagemaker_mpi_enabled=true")
        hyperparameters.append(f"sagemaker_mpi_num_of_processes_per_host={setting.processes}")
    chosen: dict[str, object] = {"hyperparameter": []} | mistake.options
    hyperparameters += chosen.pop("hyperparameter")  # type: ignore[arg-type]
    pairs = [("hyperparameter", one) for one in hyperparameters] + list(chosen.items())
    return [word for name, value in pairs for word in (f"--{name}", str(value))]


def observe(mistake: Mistake, tree: Path, python: Path) -> Seen:
    process = subprocess.Popen(
        [train_binary()],
        env=job_environment(
            SAGEMAKER_BASE_DIR=str(tree),
            SM_LAUNCH_EXIT="propagate",
            SM_LAUNCH_PYTHON=str(python),
            MASTER_PORT=free_port(),  # several jobs run at once
            PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            **mistake.environment,
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    watch = threading.Timer(LIMIT, process.kill)
    watch.start()
    began = time.monotonic()
    log = []
    assert process.stdout is not None
    for line in process.stdout:
        if BEGIN in line:
            began = time.monotonic()
        log.append(line)
    code = process.wait()
    watch.cancel()
    failure = tree / "output" / "failure"
    return Seen(
        code,
        time.monotonic() - began,
        "".join(log),
        failure.read_text(errors="replace") if failure.exists() else None,
    )

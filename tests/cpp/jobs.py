# SPDX-License-Identifier: Apache-2.0
"""Jobs of compiled programs, as the launcher runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.cpp.commands import BUILD, command, succeed
from tests.free_port import free_port


def run_job(
    job: Path,
    code: Path,
    program: str,
    settings: Mapping[str, object],
    *,
    processes: int = 1,
    data: Path | None = None,
    hyperparameters: Mapping[str, object] | None = None,
    after: Path | None = None,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Runs a program of the folder ``code`` in a new folder ``job``, with ``settings`` as its
    mp_parameters, ``data`` as its channel `train`, and variables of its environment. It goes on
    from the checkpoints of the job ``after``, if there is one."""
    options: list[object] = []
    if processes > 1:
        options += ["--processes", processes]
    if data is not None:
        options += ["--channel", f"train={data}"]
    for name, value in (hyperparameters or {}).items():
        options += ["--hyperparameter", f"{name}={value}"]
    succeed(
        BUILD / "bin/train", "--make-tree", job, "--code", code, "--program", program,
        "--mp-parameters", json.dumps(settings), *options,
    )  # fmt: skip
    if after is not None:
        shutil.copytree(after / "checkpoints", job / "checkpoints", dirs_exist_ok=True)
    return command(
        BUILD / "bin/train",
        SAGEMAKER_BASE_DIR=str(job),
        PYTHONPATH=str(BUILD / "python"),
        SM_LAUNCH_PYTHON=os.environ["WARM_PYTHON"],
        OMP_NUM_THREADS="1",
        MASTER_PORT=free_port(),
        **variables,
    )

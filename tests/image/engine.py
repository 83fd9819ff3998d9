# SPDX-License-Identifier: Apache-2.0
"""Containers and jobs that the tests of this folder share."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# For copies of docker/: what ci/vendor puts there, gigabytes.
VENDORED = shutil.ignore_patterns("debian", "wheels", "*.tar.gz")

# Calls the docker client: docker("run", IMAGE, ..., timeout=300) -> CompletedProcess
Docker = Callable[..., "subprocess.CompletedProcess[str]"]


def train_example(
    image: str,
    example: str,
    tree: Path,
    settings: Mapping[str, object],
    hyperparameters: Mapping[str, object],
    *,
    hosts: int = 2,
    processes: int = 2,
) -> str:
    """Output of the job examples/EXAMPLE, trained in containers with these mp_parameters."""
    code = ("--code", ROOT / "examples" / example, "--program", "train.py")
    return train(image, tree, settings, hyperparameters, *code, hosts=hosts, processes=processes)


def train(
    image: str,
    tree: Path,
    settings: Mapping[str, object],
    hyperparameters: Mapping[str, object],
    *options: str | Path,
    hosts: int,
    processes: int,
) -> str:
    """Output of a job that docker/cluster runs with these options, and that has to end well."""
    words = [f"--hyperparameter={name}={value}" for name, value in hyperparameters.items()]
    done = subprocess.run(
        [
            *(ROOT / "docker/cluster", "run", "--image", image, "--tree", tree),
            *("--hosts", str(hosts), "--processes", str(processes), "--timeout", "300"),
            *("--mp-parameters", json.dumps(settings), *options, *words),
        ],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    return done.stdout

# SPDX-License-Identifier: Apache-2.0
"""The job that clusters are compared by: digits on 2 x 2 ranks, and its losses on one machine."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from tests.host_network import LIMIT, ROOT, SYSTEM_PATH

BUILD = ROOT / "build" / "release"
DIGITS = ROOT / "examples" / "digits"
SETTINGS = '{"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": true}'
EPOCHS = 2

# Variables by which a script runs from the build.
BUILT = {
    "PATH": f"{BUILD}/bin:{ROOT}/.venv/bin:{SYSTEM_PATH}",
    "PYTHONPATH": f"{BUILD}/python",
    "OMP_NUM_THREADS": "1",
}


def copy_data(folder: Path) -> Path:
    """The channel `train`."""
    sklearn = next((ROOT / ".venv/lib").glob("python3*/site-packages/sklearn/datasets/data"))
    shutil.copy(sklearn / "digits.csv.gz", folder)
    return folder


def tree_options(data: Path) -> list[str]:
    """Options of train --make-tree."""
    words = ["--channel", f"train={data}", "--mp-parameters", SETTINGS]
    return [*words, "--hyperparameter", f"epochs={EPOCHS}"]


def make_tree(tree: Path, code: Path, *options: object) -> None:
    """A job's tree that its hosts share, whoever runs on them."""
    words = ["--make-tree", tree, "--cluster", "--copy", "--code", code, "--program", "train.py"]
    command = [BUILD / "bin" / "train", *map(str, [*words, *options])]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT)
    for path in [tree, *tree.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)


def losses_on_one_machine(folder: Path, data: Path) -> list[float]:
    """By mpirun alone; `folder` takes what the job writes."""
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4"]
    command += ["python", str(DIGITS / "train.py"), "--epochs", str(EPOCHS)]
    done = subprocess.run(
        command,
        env={
            "HOME": str(folder),
            "SM_MODEL_DIR": str(folder),
            "SM_CHANNEL_TRAIN": str(data),
            "SM_HP_MP_PARAMETERS": SETTINGS,
            **BUILT,
        },
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return curve(folder)


def curve(folder: Path) -> list[float]:
    """The losses that the job wrote."""
    losses: list[float] = json.loads((folder / "curve.json").read_text())["loss"]
    return losses

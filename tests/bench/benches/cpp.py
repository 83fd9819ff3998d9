# SPDX-License-Identifier: Apache-2.0
"""examples/digits_cpp beside the Python job of the same model: a step, what goes before and behind
all steps, and memory; alone and as 2 x 2 ranks. Needs ci/build."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmark import ROOT, Result, build_program, middle

sys.path.insert(0, str(ROOT))
from tests.digits_job import SETTINGS, copy_data

STEP_LIMIT, START_LIMIT = 0.9, 0.25
LESS_MEMORY = 150  # [MB]
GOAL = (
    f"a step in {STEP_LIMIT:g} and start and end in {START_LIMIT:g} of the Python job's time, and "
    f"{LESS_MEMORY} MB less in a process"
)
ROUNDS = 5
STEPS = 22  # an epoch
FEW, MANY = 1, 21  # epochs
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "4"]
MPIRUN += ["--mca", "btl", "self,vader,tcp", "--mca", "btl_vader_single_copy_mechanism", "none"]


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = {
            "C++": [str(build_program(folder, ROOT / "examples/digits_cpp", "digits"))],
            "Python": [str(ROOT / ".venv/bin/python"), str(ROOT / "tests/cpp/digits.py")],
        }
        prepare(folder)
        results = []
        for place, launcher in (("one process", []), ("2 x 2 ranks", MPIRUN)):
            results += measured(place, launcher, commands, folder)
        peaks = {one: peak_of(words, folder) for one, words in commands.items()}
    rows = [("resident memory, one process, MB", "C++", "Python")]
    rows.append(("peak", *(f"{peaks[one]:.0f}" for one in ("C++", "Python"))))
    limit = (peaks["Python"] - LESS_MEMORY) / peaks["Python"]
    return [*results, Result("cpp-memory", peaks["C++"], peaks["Python"], limit, GOAL, rows)]


def prepare(folder: Path) -> None:
    """The tree of the job, of which both read what they need."""
    data = folder / "input/data/train"
    for made in (data, folder / "input/config", folder / "output/data", folder / "model"):
        made.mkdir(parents=True)
    packed = copy_data(folder) / "digits.csv.gz"
    (data / "digits.csv").write_bytes(gzip.decompress(packed.read_bytes()))
    (folder / "input/config/inputdataconfig.json").write_text('{"train": {}}')


def variables(folder: Path, settings: str) -> dict[str, str]:
    return os.environ | {
        "SAGEMAKER_BASE_DIR": str(folder),
        "SM_CHANNEL_TRAIN": str(folder / "input/data/train"),
        "SM_OUTPUT_DATA_DIR": str(folder / "output/data"),
        "SM_HP_MP_PARAMETERS": settings,
        "PYTHONPATH": str(ROOT / "build/release/python"),
        "OMP_NUM_THREADS": "1",
        "SMP_PROGRESS": "off",
    }


def seconds(command: list[str], epochs: int, folder: Path, settings: str) -> tuple[float, float]:
    """Seconds of the whole job, and the peak memory in MB of the process that was started."""
    config = folder / "input/config/hyperparameters.json"
    config.write_text(f'{{"epochs": "{epochs}", "save": "false"}}')
    begin = time.monotonic()
    process = subprocess.Popen(
        [*command, "--epochs", str(epochs), "--save", "false"],
        env=variables(folder, settings),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"ci/bench cpp: {command} ended with {process.returncode}")
    return time.monotonic() - begin, usage.ru_maxrss / 1000


def peak_of(command: list[str], folder: Path) -> float:
    return seconds(command, FEW, folder, '{"microbatches": 4}')[1]


def measured(
    place: str, launcher: list[str], commands: dict[str, list[str]], folder: Path
) -> list[Result]:
    settings = SETTINGS if launcher else '{"microbatches": 4}'
    few: dict[str, list[float]] = {one: [] for one in commands}
    many: dict[str, list[float]] = {one: [] for one in commands}
    for _ in range(ROUNDS):
        for one, command in commands.items():
            few[one].append(seconds([*launcher, *command], FEW, folder, settings)[0])
            many[one].append(seconds([*launcher, *command], MANY, folder, settings)[0])
    step = {
        one: (middle(many[one]) - middle(few[one])) / ((MANY - FEW) * STEPS) for one in commands
    }
    rest = {one: middle(few[one]) - FEW * STEPS * step[one] for one in commands}
    rows = [(place, "C++", "Python")]
    rows.append(("step, ms", *(f"{1e3 * step[one]:.2f}" for one in commands)))
    rows.append(("start and end, s", *(f"{rest[one]:.2f}" for one in commands)))
    short = place.replace(" ", "_")
    return [
        Result(f"cpp-step-{short}", step["C++"], step["Python"], STEP_LIMIT, GOAL, rows),
        Result(f"cpp-start-{short}", rest["C++"], rest["Python"], START_LIMIT, GOAL),
    ]

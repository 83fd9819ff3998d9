# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a tutorial, and finds on its page what they are to print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.free_port import free_port

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
LIMIT_SECONDS = 600

# Variables that another launcher set must not decide who the ranks are.
FOREIGN = ("MASTER_", "OMPI_", "PMIX_", "RANK", "WORLD_SIZE", "LOCAL_", "SM_", "SMP_", "SAGEMAKER_")

OUTPUT_BLOCK = re.compile(r"```\{code-block\} text\n:caption: Output\n\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def build_folder() -> Path:
    """The build of the launcher under test, if it lies in one; else that of ci/build."""
    if launcher := os.environ.get("SMP_TRAIN"):
        folder = Path(launcher).absolute().parents[1]
        if (folder / "cmake_install.cmake").exists():
            return folder
    return ROOT / "build" / "release"


def workplace(folder: Path) -> Path:
    """A copy of what the commands use, laid out as the repository; links where they only read."""
    shutil.copytree(TUTORIALS, folder / "docs" / "tutorials")
    for name in ("ci", "docker", "examples"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build").mkdir()
    (folder / "build" / "release").symlink_to(build_folder())
    return folder


def environment(**variables: str) -> dict[str, str]:
    """As in a shell after `source .venv/bin/activate`, with the launcher under test first, and
    Debian's docker before others, which may lack BuildKit."""
    programs = [str(Path(sys.executable).parent), "/usr/bin"]
    if launcher := os.environ.get("SMP_TRAIN"):
        programs.insert(0, str(Path(launcher).parent))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return kept | {
        "PATH": ":".join([*programs, os.environ.get("PATH", "/usr/bin:/bin")]),
        "OMPI_MCA_btl": "^openib,ofi",  # btl/ofi sleeps for a second when a rank ends
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_PORT": free_port(),  # two tests at once
        **variables,
    }


def by_interpreter(python: Path) -> dict[str, str]:
    """Variables with which `python`, `mpirun … python` and `train` run that interpreter."""
    path = environment()["PATH"]
    return {"PATH": f"{python.parent}:{path}", "SM_LAUNCH_PYTHON": str(python)}


def run_tutorial(name: str, folder: Path, **variables: str) -> str:
    """Returns what the commands of a tutorial print, which have to end well."""
    script = workplace(folder) / "docs" / "tutorials" / name / "run.sh"
    done = subprocess.run(
        ["bash", str(script)],
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def shown_lines(page: str) -> list[str]:
    """The lines of a page's blocks with the caption Output, but for those that leave some out."""
    blocks = OUTPUT_BLOCK.findall(page)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line not in ("", "…")]


def pattern_of(line: str) -> str:
    """A number stands for any number, … for any text, blanks for any blanks."""
    parts = [
        r"\s+".join(re.escape(NUMBER.sub("0", word)) for word in part.split())
        for part in line.split("…")
    ]
    return ".*".join(part.replace("0", r"\d+(?:\.\d+)?") for part in parts)


def missing_lines(page: str, output: str) -> list[str]:
    """Lines that the page shows and the commands did not print."""
    return [line for line in shown_lines(page) if not re.search(pattern_of(line), output)]

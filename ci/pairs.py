# SPDX-License-Identifier: Apache-2.0
"""Versions of PyTorch and Python that wheels are made for, and environments that have them.

usage: pairs.py TORCH PYTHON

Minor versions; where one is empty it is the locked one, or that of the machine's /usr/bin/python3.
Prints the full version of PyTorch, that of Python, and an interpreter of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import tomllib
from install_locks import configured_uv

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
SMP = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["smp"]


class Pair(NamedTuple):
    """Minor versions, such as 2.15 and 3.11."""

    torch: str
    python: str

    @property
    def folder(self) -> Path:
        """The folder in which `environment` makes it."""
        return ROOT / "build" / f"torch{self.torch}-python{self.python}"


def unsupported(pair: Pair) -> str:
    """The reason why no wheel is made for a pair; empty where one is."""
    if pair.torch not in SMP["torch"] or pair.python not in SMP["python"]:
        known = f"torch {', '.join(SMP['torch'])} and Python {', '.join(SMP['python'])}"
        return f"torch {pair.torch} with Python {pair.python} is not of those supported: {known}"
    if pair.python in SMP["without"].get(pair.torch, []):
        return f"PyTorch {pair.torch} has no wheel for Python {pair.python}"
    return ""


def pairs_here() -> list[Pair]:
    """Pairs whose interpreter is on this machine, by Python; prints the missing interpreters."""
    found = []
    for python in SMP["python"]:
        try:
            interpreter(f"python{python}")
        except SystemExit:
            print(f"no python{python} with headers here: left out", file=sys.stderr)
            continue
        found += [pair for torch in SMP["torch"] if not unsupported(pair := Pair(torch, python))]
    return found


def default_pair() -> Pair:
    """.venv's."""
    return Pair(minor_of(BIN / "python", "torch"), minor_of(BIN / "python", "python"))


@cache
def minor_of(python: Path, what: str) -> str:
    code = {
        "python": "import sysconfig; print(sysconfig.get_python_version())",
        "torch": "from importlib.metadata import version; print(version('torch'))",
        "cuda": "import torch.version as v; print(v.cuda or '')",
    }[what]
    return ".".join(ask(str(python), code).split(".")[:2])


def ask(python: str, code: str) -> str:
    """Returns what a piece of Python prints; empty where it fails."""
    done = subprocess.run(
        [python, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def interpreter(name: str) -> str:
    """The first one of that name on PATH, or of pyenv, that runs and has its headers.

    Raises SystemExit with the reason where there is none.
    """
    tried = []
    for folder in [*os.environ.get("PATH", "").split(os.pathsep), *pyenv_folders()]:
        path = Path(folder) / name
        if not os.access(path, os.X_OK):
            continue
        include = ask(str(path), "import sysconfig; print(sysconfig.get_path('include'))")
        if include and (Path(include) / "Python.h").exists():
            return str(path)
        tried.append(f"{path} ({'no headers in ' + include if include else 'does not run'})")
    raise SystemExit(
        f"found no {name} with headers"
        + (f"; tried {', '.join(tried)}" if tried else "")
        + ". Modules are compiled for the interpreter that loads them: install that version with "
        "its headers"
    )


def pyenv_folders() -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return sorted(str(folder) for folder in root.glob("versions/*/bin"))


def uv(*words: str | Path) -> None:
    """Runs uv with the index and the certificates that pip is configured for.

    Raises SystemExit where it fails.
    """
    configured = configured_uv(BIN / "python")
    if configured is None:
        sys.exit("pip's configuration says what uv cannot be told: `pip config list`")
    options, variables = configured
    run(BIN / "uv", *words, *options, **variables)


def run(*command: str | Path, **variables: str) -> None:
    """From the repository's folder, with all output on stderr; raises SystemExit where it fails."""
    print("$", *command, file=sys.stderr, flush=True)
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, stdout=sys.stderr, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{Path(command[0]).name} ended with {done.returncode}")


def environment(pair: Pair) -> Path:
    """An interpreter of a pair, with its torch: .venv's, or that of a folder of build/.

    Fetches its torch from the index the first time: 7 GB of disk, or 1 GB where .venv has the same
    torch, whose libraries of CUDA are then used.
    """
    if pair == default_pair():
        return BIN / "python"
    python = pair.folder / "bin" / "python"
    if python.exists() and minor_of(python, "torch") == pair.torch:
        return python
    base = interpreter(f"python{pair.python}")
    options = ("--quiet", "--clear", "--relocatable", "--python", base)
    run(BIN / "uv", "venv", *options, pair.folder)
    torch, others = f"torch=={SMP['torch'][pair.torch]}", ("numpy", "pytest")
    install = ("pip", "install", "--no-cache", "--python", python)
    if pair.torch == default_pair().torch:
        uv(*install, "--no-deps", torch)
        uv(*install, *others)
        (here,) = (pair.folder / "lib").glob("python*/site-packages")
        (there,) = (BIN.parent / "lib").glob("python*/site-packages")
        (here / "nvidia").symlink_to(there / "nvidia")
        (here / "of_venv.pth").write_text(f"{there}\n")  # what torch needs of pure Python
    else:
        uv(*install, torch, *others)
    minor_of.cache_clear()
    return python


def torch_environment(torch: str) -> Path:
    """Any interpreter that has this torch, whose headers and libraries are the same for all."""
    if minor_of(BIN / "python", "torch") == torch:
        return BIN / "python"
    for pair in (Pair(torch, python) for python in SMP["python"]):
        if (pair.folder / "bin" / "python").exists():
            return environment(pair)
    return environment(next(pair for pair in pairs_here() if pair.torch == torch))


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    torch, python = sys.argv[1:]
    newest, own = list(SMP["torch"])[-1], f"{sys.version_info.major}.{sys.version_info.minor}"
    pair = Pair(torch or newest, python or own)
    if reason := unsupported(pair):
        sys.exit(f"ci/setup: {reason}")
    print(SMP["torch"][pair.torch], pair.python, interpreter(f"python{pair.python}"))


if __name__ == "__main__":
    main()

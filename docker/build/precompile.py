# SPDX-License-Identifier: Apache-2.0
"""Writes the bytecode of the modules that every training job imports, and of no others.

A container writes no bytecode (PYTHONDONTWRITEBYTECODE), so each rank would compile torch's
Python sources again; all of them would cost three times the space.

Two builds write the same bytes: the files hold a hash in place of a time, and an interpreter that
has imported none of them compiles them in one order. In the one that did, the names that happen to
be in use, and how sets hash, show in the bytecode, so what it writes is thrown away.
"""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import tempfile
from pathlib import Path

IMPORTED = (
    "torch",
    "torch.distributed",
    "torch.distributed.elastic.multiprocessing.errors",
    "torch.distributed.run",
    "torch.nn.parallel",
    "torch.utils.data",
    "torchvision",
    "numpy",
    "mpi4py",
    "packaging.version",
    "pip._internal.cli.main",
)
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"


def imported_sources() -> list[str]:
    """Sources below the environment that these imports read: those whose bytecode they leave. A
    module may take another's place in sys.modules and have no file there."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                sys.executable,
                "-X",
                f"pycache_prefix={folder}",
                "-c",
                f"import {', '.join(IMPORTED)}",
            ],
            env={name: value for name, value in os.environ.items() if name != _NO_BYTECODE},
            check=True,
        )
        written = [path.relative_to(folder) for path in Path(folder).rglob("*.pyc")]
    sources = sorted(f"/{path.parent}/{path.name.partition('.')[0]}.py" for path in written)
    return [source for source in sources if Path(source).is_relative_to(sys.prefix)]


def compile_sources(sources: list[str]) -> None:
    written = 0
    for source in sources:
        target = py_compile.compile(
            source,
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        written += Path(str(target)).stat().st_size
    print(f"bytecode of {len(sources)} modules: {written / 1e6:.0f} MB")


def main() -> None:
    if sys.argv[1:] == ["--listed"]:
        compile_sources(sys.stdin.read().splitlines())
        return
    elsewhere = ["-X", f"pycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else []
    subprocess.run(
        [sys.executable, "-S", *elsewhere, __file__, "--listed"],
        input="\n".join(imported_sources()),
        env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
        text=True,
        check=True,
    )


if __name__ == "__main__":
    main()

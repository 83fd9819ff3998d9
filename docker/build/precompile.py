# SPDX-License-Identifier: Apache-2.0
"""Writes the bytecode of the modules that every training job imports, and of no others.

A container writes no bytecode (PYTHONDONTWRITEBYTECODE), so each rank would compile torch's
Python sources again; all of them would cost three times the space. The files hold a hash in
place of a time, so that two builds write the same bytes.
"""

from __future__ import annotations

import importlib
import py_compile
import sys
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


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    files = {getattr(module, "__file__", None) for module in sys.modules.values()}
    sources = sorted(name for name in files if name and name.endswith(".py"))
    written = 0
    for source in sources:
        if Path(source).is_relative_to(sys.prefix):
            target = py_compile.compile(
                source,
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            written += Path(str(target)).stat().st_size
    print(f"bytecode of {len(sources)} modules: {written / 1e6:.0f} MB")


if __name__ == "__main__":
    main()

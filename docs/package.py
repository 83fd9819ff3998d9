# SPDX-License-Identifier: Apache-2.0
"""Makes the Python files of this checkout importable with the extension modules that were built.

The installed package has the docstrings of the day on which it was installed; pages are made from
those of today. As a script: succeeds if the package can be imported.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "smp_runtime" / "python"


def make_importable() -> None:
    """Puts the sources first, and behind them each folder that has extension modules."""
    built = [Path(folder, "smdistributed") for folder in sys.path if folder]
    sys.path.insert(0, str(SOURCES))
    package = importlib.import_module("smdistributed")
    package.__path__.extend(str(folder) for folder in built if any(folder.glob("_runtime*.so")))


if __name__ == "__main__":
    make_importable()
    importlib.import_module("smdistributed.modelparallel.torch")
    importlib.import_module("smdistributed._smddp")

# SPDX-License-Identifier: Apache-2.0
"""Makes the package of the build tree importable, whose Python files are links to those of this
checkout: pages are made from the docstrings of today. As a script: succeeds if it can be imported.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

BUILT = Path(__file__).resolve().parents[2] / "build" / "release" / "python"


def make_importable() -> None:
    """Puts the build tree's package before an installed one."""
    sys.path.insert(0, str(BUILT))


if __name__ == "__main__":
    make_importable()
    importlib.import_module("smdistributed.modelparallel.torch")
    importlib.import_module("smdistributed._smddp")

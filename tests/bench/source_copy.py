# SPDX-License-Identifier: Apache-2.0
"""A copy of the source to edit and build, so that nobody's tree is touched."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

from benchmark import ROOT


def copy_source(folder: Path) -> None:
    """The tracked files as they lie here."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)


def edit(file: Path) -> None:
    """Adds code, not only a comment: that would leave the compiler nothing to do."""
    mark = uuid.uuid4().hex
    python = f"_BENCH = {mark!r}\n"
    cpp = f'namespace {{ [[maybe_unused]] const char* const k{mark} = "{mark}"; }}\n'
    file.write_text(file.read_text() + (python if file.suffix == ".py" else cpp))

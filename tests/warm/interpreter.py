# SPDX-License-Identifier: Apache-2.0
"""A `python3` that starts scripts in milliseconds, with torch imported."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
LIMIT = 60  # [s] for a server to end


@contextmanager
def warm_python(
    folder: Path, python: str = sys.executable, imports: Sequence[str] = ()
) -> Iterator[Path]:
    """Yields an interpreter in ``folder``, for ``SM_LAUNCH_PYTHON`` or PATH, until the end of the
    block. What a script finds imported is torch and ``imports``, with the ``sys.path`` of
    ``python``; variables that torch reads when it is imported come too late. A folder named "bin"
    is one of a virtual environment like that of ``python``.
    """
    folder.mkdir(parents=True)
    prefix = Path(python).parents[1]
    if folder.name == "bin" and (prefix / "pyvenv.cfg").exists():
        for name in ("pyvenv.cfg", "lib"):
            (folder.parent / name).symlink_to(prefix / name)
    shutil.copy(HERE / "python3", folder)
    (folder / "python").symlink_to("python3")
    (folder / "interpreter").write_text(python)
    server = subprocess.Popen(
        [python, HERE / "server.py", folder, *imports],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None
    try:
        assert server.stdout.readline() == "ready\n", "the server of warm interpreters failed"
        yield folder / "python3"
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait(LIMIT)

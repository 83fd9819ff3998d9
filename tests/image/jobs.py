# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of jobs in containers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.image.engine import Docker

# make_tree(SCRIPT, *OPTIONS) -> a host's tree, or the folder of the hosts' trees
MakeTree = Callable[..., Path]


def wait_for_line(docker: Docker, container: str, line: str) -> None:
    deadline = time.monotonic() + 60
    while line not in docker("logs", container).stdout:
        assert time.monotonic() < deadline, f"{container} never printed {line!r}"
        time.sleep(0.05)

# SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Calls the docker client: docker("run", IMAGE, ..., timeout=300) -> CompletedProcess
Docker = Callable[..., "subprocess.CompletedProcess[str]"]

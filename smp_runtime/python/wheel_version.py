# SPDX-License-Identifier: Apache-2.0
"""The version of a wheel: pyproject's, and behind it what WHEEL_LABEL says that it is made for
(`torch2.15`), so that wheels for two releases of PyTorch are two versions to pip."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def dynamic_metadata(_settings: Mapping[str, Any], _project: Mapping[str, Any]) -> dict[str, Any]:
    version = re.search(r'^version = "(.*)"$', Path("pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    label = os.environ.get("WHEEL_LABEL", "")
    return {"version": version[1] + (f".{label}" if label else "")}

# SPDX-License-Identifier: Apache-2.0
"""Checks that the packages needed here are installed."""

from __future__ import annotations

import importlib.util

from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError


def require_packages() -> None:
    """Raises SMPUnsupportedError, naming the package, unless all are installed."""
    for name in ("transformers", "accelerate"):
        if importlib.util.find_spec(name) is None:
            raise SMPUnsupportedError(
                f"smdistributed.modelparallel.torch.huggingface needs the package {name}, which is "
                "not installed: pip install transformers accelerate"
            )

# SPDX-License-Identifier: Apache-2.0
"""Hooks by which Transformers 5 records hidden states, attentions and router logits."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from torch import nn


def install_recorders(modules: Iterable[nn.Module]) -> None:
    """Hooks modules as the first forward that records would.

    That forward runs on the rank of the outermost module, and modules of other ranks, too, must
    have the hooks. They do nothing where nothing is recorded. Transformers is not imported for it.
    """
    capturing = sys.modules.get("transformers.utils.output_capturing")
    if capturing is None:
        return
    for module in modules:
        if _records(type(module).forward, capturing.__file__):
            capturing.maybe_install_capturing_hooks(module)


def _records(forward: Any, file: str | None) -> bool:
    """True if ``forward`` is decorated with ``capture_outputs``, which ``file`` defines."""
    while forward is not None:
        if getattr(getattr(forward, "__code__", None), "co_filename", "") == file:
            return True
        forward = getattr(forward, "__wrapped__", None)
    return False

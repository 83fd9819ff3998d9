# SPDX-License-Identifier: Apache-2.0
"""The one name of DeepSpeed that a published script patches, for who asks for it.

``from deepspeed.runtime.zero import stage3; stage3.assert_ints_same_as_other_ranks = …`` turned off
a check of the published library, which was built on DeepSpeed. Ours is not; with
``SMP_DEEPSPEED_COMPAT=1`` the import works nevertheless where the real package is absent. No
distribution of that name is there, so that other libraries do not believe that DeepSpeed is.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_PACKAGES = ("deepspeed", "deepspeed.runtime", "deepspeed.runtime.zero")
_STAGE3 = "deepspeed.runtime.zero.stage3"


def assert_ints_same_as_other_ranks(_ints: Any) -> None:
    """Does nothing, whether it was patched or not: shards check each exchange by themselves."""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last in the list, so that it is asked only for what nobody else has."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in (*_PACKAGES, _STAGE3):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name in _PACKAGES)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = "Names of DeepSpeed, by smdistributed (SMP_DEEPSPEED_COMPAT=1)."
        if module.__name__ == _STAGE3:
            module.assert_ints_same_as_other_ranks = (  # type: ignore[attr-defined]
                assert_ints_same_as_other_ranks
            )


def offer() -> None:
    """Makes the names importable, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())

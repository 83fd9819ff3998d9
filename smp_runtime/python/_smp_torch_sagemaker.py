# SPDX-License-Identifier: Apache-2.0
"""Finder by which ``import torch.sagemaker`` finds ``smdistributed.sagemaker``.

``smp_torch_sagemaker.pth`` installs it when Python starts. It answers for ``torch.sagemaker`` and
what is below it alone, imports neither torch nor ``smdistributed`` before that is asked for, and
steps back where torch has such a package of its own, as in Amazon's images.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing's, without importing it: each Python starts with this file
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

NAME = "torch.sagemaker"
_OURS = "smdistributed.sagemaker"


class _Alias:
    """Loader that gives the module of ours, under both names one and the same."""

    def __init__(self, ours: str) -> None:
        self._ours = ours
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        from importlib import import_module  # noqa: PLC0415

        module = import_module(self._ours)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Undoes what Python has put there: the module ran already, under its own name."""
        module.__spec__ = self._spec


def _spec(name: str, ours: str) -> ModuleSpec:
    from importlib.machinery import ModuleSpec  # noqa: PLC0415

    return ModuleSpec(name, _Alias(ours))  # type: ignore[arg-type]  # no base class: a light start


class Finder:
    """Comes first: what is below the alias lies in a folder that Python's own finder would take."""

    def __init__(self) -> None:
        self._has_told = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == NAME:
            return None if self._steps_back(path) else _spec(name, _OURS)
        if not name.startswith(f"{NAME}."):
            return None
        if getattr(sys.modules.get(NAME), "__name__", "") != _OURS:
            return None  # the genuine library's
        from importlib.util import find_spec  # noqa: PLC0415

        ours = _OURS + name.removeprefix(NAME)
        return _spec(name, ours) if find_spec(ours) else None

    def _steps_back(self, path: Sequence[str] | None) -> bool:
        from importlib.machinery import PathFinder  # noqa: PLC0415

        genuine = PathFinder.find_spec(NAME, path)
        if genuine is None:
            return False
        if not self._has_told:
            self._has_told = True
            print(
                f"open-smp-train: torch has a {NAME} of its own, {genuine.origin}: that one is "
                "imported, and not ours",
                file=sys.stderr,
                flush=True,
            )
        return True


def install() -> None:
    """Makes the name importable, once."""
    if not any(type(finder).__name__ == Finder.__name__ and type(finder).__module__ == __name__
               for finder in sys.meta_path):  # fmt: skip
        sys.meta_path.insert(0, Finder())

# SPDX-License-Identifier: Apache-2.0
"""Names of Transformer Engine and Megatron that published scripts import at their top, whether they
use them or not. Where the packages are absent, the imports work, and using a name raises.

No distribution of those names is there, so that libraries which look for one find none.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn


class CheckpointingException(Exception):  # as Megatron names it
    """Megatron's error of checkpoints, which nothing here raises."""


def _absent(name: str) -> type:
    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{name} is used, and its package is not installed: 8-bit floats are not offered; "
            "leave them off, which is --fp8 0 of published scripts"
        )

    return type(name.rpartition(".")[2], (), {"__new__": refuse, "__doc__": f"{name}, absent."})


class _Format:
    """Names of formats, which scripts write down."""

    HYBRID = "HYBRID"
    E4M3 = "E4M3"


_MODULES: dict[str, dict[str, Any]] = {
    "transformer_engine": {},
    "transformer_engine.common": {},
    "transformer_engine.common.recipe": {
        "DelayedScaling": _absent("transformer_engine.common.recipe.DelayedScaling"),
        "Format": _Format,
    },
    "transformer_engine.pytorch": {
        "checkpoint": _absent("transformer_engine.pytorch.checkpoint"),
        "fp8_autocast": _absent("transformer_engine.pytorch.fp8_autocast"),
    },
    "megatron": {},
    "megatron.core": {},
    "megatron.core.dist_checkpointing": {},
    "megatron.core.dist_checkpointing.mapping": {"CheckpointingException": CheckpointingException},
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last in the list, so that it is asked only for what nobody else has."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _MODULES or not self._made_the_parent_of(name):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def _made_the_parent_of(self, name: str) -> bool:
        parent = name.rpartition(".")[0]
        spec = getattr(sys.modules.get(parent), "__spec__", None)
        return not parent or getattr(spec, "loader", None) is self

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = "Names of a package that is not installed, by torch.sagemaker."
        vars(module).update(_MODULES[module.__name__])
        if module.__name__ == "transformer_engine":  # scripts reach what is below by attribute
            importlib.import_module("transformer_engine.pytorch")


def offer() -> None:
    """Makes the names importable, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())

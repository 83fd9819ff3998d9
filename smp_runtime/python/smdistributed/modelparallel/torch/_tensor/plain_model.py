# SPDX-License-Identifier: Apache-2.0
"""What a model was before modules of it were replaced by distributed ones."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class PlainModel:
    """A script's model, without its values."""

    kind: str
    """The name of its class."""
    names: tuple[str, ...]
    """The keys of its state dict, in order; none unless modules were replaced."""
    classes: dict[str, str]
    """Module and name of the class of each module that was replaced, by name."""
    unsaved: frozenset[str]
    """Keys that Transformers leaves out of files."""
    config: Any
    """Its config, where it is a model of Transformers."""
    generation_config: Any
    """And that of its generation of text, where it generates any."""

    def configs(self, dtype: torch.dtype | None) -> list[Any]:
        """What Transformers writes beside values of the type ``dtype``; empty for other models."""
        if self.config is None:
            return []
        config = copy.deepcopy(self.config)
        config.architectures = [self.kind]
        if dtype is not None:  # Transformers 4 has the longer name
            name = "dtype" if hasattr(config, "dtype") else "torch_dtype"
            setattr(config, name, str(dtype).removeprefix("torch."))
        return [config] if self.generation_config is None else [config, self.generation_config]

    def config_text(self) -> str:
        """The content of the file with its config; "" for other models, and where Transformers
        cannot write it."""
        for config in self.configs(None)[:1]:
            try:
                return str(config.to_json_string())
            except Exception:  # of Transformers, which refuses some settings
                return ""
        return ""


def described(model: nn.Module, replaced: Mapping[str, nn.Module]) -> PlainModel:
    """The description of ``model``, of which modules are about to be replaced.

    >>> linear = nn.Linear(2, 1)
    >>> described(linear, {"": linear}).classes, described(linear, {}).names
    ({'': 'torch.nn.modules.linear.Linear'}, ())
    """
    config: Any = getattr(model, "config", None)
    generates: Any = getattr(model, "can_generate", lambda: False)
    return PlainModel(
        kind=type(model).__name__,
        names=tuple(model.state_dict()) if replaced else (),
        classes={name: class_name(type(module)) for name, module in replaced.items()},
        unsaved=frozenset(getattr(model, "_keys_to_ignore_on_save", None) or ()),
        config=config if hasattr(config, "save_pretrained") else None,
        generation_config=getattr(model, "generation_config", None) if generates() else None,
    )


def class_name(kind: type) -> str:
    """Its module and name."""
    return f"{kind.__module__}.{kind.__qualname__}"

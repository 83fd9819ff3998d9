# SPDX-License-Identifier: Apache-2.0
"""What scripts of SMP v2 (``torch.sagemaker``) begin with: ``pretrained``, a folder of Hugging Face
for ``from_pretrained``, and ``sharded``, a checkpoint of DCP under the names of FSDP, which they
resume from with the state of the optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from smdistributed.modelparallel.torch._checkpoint.conversion_sources import LEFT_OUT, Source
from smdistributed.modelparallel.torch._checkpoint.dcp_content import DcpContent
from smdistributed.modelparallel.torch._checkpoint.dcp_writing import write_dcp
from smdistributed.modelparallel.torch._checkpoint.model_config import ModelConfig
from smdistributed.modelparallel.torch._checkpoint.whole_parts import WholeParts
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError

PRETRAINED, SHARDED = "pretrained", "sharded"
_MODEL, _OPTIMIZER = "model", "optimizer"
#: Where published scripts of v1 and of v2 have the state of their scheduler.
_RENAMED = {"lr_scheduler": "scheduler"}


class ShardedState:
    """The checkpoint ``sharded`` of ``source`` with the entries ``further``; None in the place of
    its content where there is none. ``told`` says what is in it, and what is left behind."""

    def __init__(self, source: Source, further: Mapping[str, Any]) -> None:
        self.content: DcpContent | None = None
        if source.kept is None or source.field is None or source.parts is None:
            if further:
                raise SMPCheckpointError(
                    f"convert got content {', '.join(further)} for {SHARDED}, which is not "
                    f"written: the {source.kind} has no state of an optimizer that can be converted"
                )
            self.told = source.left_out or LEFT_OUT.replace("is left out", "is not in it")
            return
        if unlike := _unlike(source.kept.others):
            self.told = (
                f"; {SHARDED} is left out: the optimizer's {unlike} has other shapes than its "
                "parameters, and FSDP shards none such"
            )
            return
        self.content = DcpContent()
        self.content.add_model(source.model, _MODEL)
        self.content.add_optimizer(source.kept, source.field, _OPTIMIZER)
        own, left = _own_content(source.parts, source.config)
        own |= further
        left += [f"{name} of the user content" for name in (_MODEL, _OPTIMIZER) if name in own]
        taken = {name: one for name, one in own.items() if name not in self.content.content}
        self.content.content |= taken
        if source.parts.has_loss_scale:
            left.append("the loss scale")
        left += [f"{name} of the optimizer" for name in source.parts.common]
        self.told = ", ".join([f"; {SHARDED} has the optimizer's state", *sorted(taken)])
        if left:
            self.told += f"; left behind: {', '.join(left)}"

    def write(self, folder: Path) -> None:
        """Writes it into ``folder``, if there is any. Raises SMPCheckpointError where one is that
        would be left beside another model."""
        if self.content is not None:
            write_dcp(folder / SHARDED, self.content)

    def check(self, folder: Path) -> None:
        """Raises SMPCheckpointError for a ``sharded`` that would be left beside another model."""
        if self.content is None and (folder / SHARDED).exists():
            raise SMPCheckpointError(
                f"{folder} has {SHARDED} of another checkpoint, and this one makes none; give "
                "another folder"
            )


def _own_content(parts: WholeParts, config: ModelConfig | None) -> tuple[dict[str, Any], list[str]]:
    """Entries of the script's own content, by the names of v2, and what is left of it."""
    try:
        with torch.serialization.safe_globals([] if config is None else config.classes()):
            content = parts.user_content()
    except SMPCheckpointError as error:
        return {}, [f"the user content ({error})"]
    if not isinstance(content, dict):
        return {}, [f"the user content, a {type(content).__name__}"]
    named = {_RENAMED.get(name, name): one for name, one in content.items()}
    taken = {name: one for name, one in named.items() if isinstance(name, str) and name}
    return taken, [f"{name!r} of the user content" for name in named if name not in taken]


def _unlike(others: Mapping[str, Mapping[str, Any]]) -> str:
    """What an optimizer keeps beside fields with tensors that FSDP cannot shard; else ""."""
    return next((key for kept in others.values() for key, value in kept.items()
                 if isinstance(value, torch.Tensor) and value.dim() > 0), "")  # fmt: skip

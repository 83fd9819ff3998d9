# SPDX-License-Identifier: Apache-2.0
"""State that the Trainer saves of a model on several ranks, and goes on from.

A checkpoint folder has the whole model (model.safetensors, config.json), as ``from_pretrained``
reads it; in smp_partial model and optimizer in parts, see ``smp.save_checkpoint``; scheduler.pt,
trainer_state.json, and a rng_state_RANK.pth for each rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import read_object
from smdistributed.modelparallel.torch._checkpoint.checkpoints import (
    resume_from_checkpoint,
    save_checkpoint,
)
from smdistributed.modelparallel.torch._checkpoint.save_load import load
from smdistributed.modelparallel.torch._checkpoint.saved_states import with_tied
from smdistributed.modelparallel.torch._checkpoint.whole_models import INSTEAD
from smdistributed.modelparallel.torch._ranks import log
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.modelparallel.torch.model import DistributedModel

#: Tag of the checkpoint in parts within a checkpoint folder of the Trainer.
TAG = "smp"
_WHOLE = "pytorch_model.bin"  # or what lies there in its place
_WHOLES = (_WHOLE, *INSTEAD)
_OLD_OPTIMIZER = "optimizer.pt"


class TrainerCheckpoints:
    """Checkpoints of a model that was wrapped; ``tied`` are its tied_names() from before."""

    def __init__(self, model: DistributedModel, tied: dict[str, str]) -> None:
        self._model, self._tied = model, tied

    def whole(self) -> dict[str, Any]:
        """The whole model under its names before it was wrapped. Collective: all ranks call it."""
        entries = dict(self._model.plain_state_dict())
        # One tensor each, as in the plain model: else both are written.
        for name, first in self._tied.items():
            if name in entries and first in entries:
                entries[name] = entries[first]
        return entries

    def save_parts(self, folder: str) -> None:
        """Model and optimizer. Collective."""
        save_checkpoint(folder, TAG, partial=True, model=self._model)

    def load_model(self, folder: str) -> None:
        """The whole model if it is there, else its parts. Collective."""
        if any((Path(folder) / name).is_file() for name in _WHOLES):
            resume_from_checkpoint(
                folder, _WHOLE, partial=False, translate_function=self._with_tied
            )
        elif _parts(folder).is_dir():
            resume_from_checkpoint(folder, TAG, partial=True, load_optimizer=False)
        else:
            raise SMPCheckpointError(
                f"{folder} has no checkpoint of the Trainer: neither {', '.join(_WHOLES)} nor "
                f"{_parts(folder).name}"
            )

    def load_training(self, folder: str, scheduler: Any) -> None:
        """Model and optimizer as they were saved, and the learning rate's schedule. Collective."""
        old = sorted(Path(folder).glob(f"{_OLD_OPTIMIZER}_*"))
        if _parts(folder).is_dir():
            resume_from_checkpoint(folder, TAG, partial=True)
        elif old:  # saved by the Trainer's own calls, in versions that had them
            self._model.register_post_partition_hook(_loads_old(Path(folder) / _OLD_OPTIMIZER))
        else:
            log.warning(f"{folder} has no state of an optimizer, which begins anew")
        saved = Path(folder) / "scheduler.pt"
        if saved.is_file():
            scheduler.load_state_dict(read_object(saved))

    def _with_tied(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Files of safetensors hold tied parameters once, under any of their names."""
        firsts = {first: entries[name] for name, first in self._tied.items() if name in entries}
        known = {**firsts, **entries}
        return {**with_tied(known, self._tied), **known}


def _parts(folder: str) -> Path:
    return Path(folder) / (TAG + _runtime.PARTIAL)


def _loads_old(path: Path) -> Any:
    def hook(_model: DistributedModel, optimizer: Any) -> None:
        if optimizer is not None:
            optimizer.load_state_dict(load(str(path), partial=True))

    return hook

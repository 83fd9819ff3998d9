# SPDX-License-Identifier: Apache-2.0
"""Whole state dicts from the shards that a job with sharded data parallelism saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any, overload

import torch
from torch import nn

from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import read_object
from smdistributed.modelparallel.torch._checkpoint.resliced_parts import (
    joined_entries,
    slices_from_json,
)
from smdistributed.modelparallel.torch._checkpoint.shard_states import (
    SavedParts,
    check_format,
)
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError


def get_full_state_dict_from_sharded_data_parallel_checkpoint(
    checkpoint_dir: str,
    dtype: torch.dtype = torch.float32,
    tag: str | None = None,
    remove_smp_prefix: bool = True,
) -> dict[str, Any]:
    """The whole model from a partial checkpoint, in one process, without a job.

    Args:
        checkpoint_dir: the ``path`` of ``smp.save_checkpoint``.
        dtype: of the parameters that were trained; buffers keep theirs.
        tag: of the checkpoint; the newest unless given.
        remove_smp_prefix: accepted; names are the user's anyway, of distributed modules theirs.

    Returns:
        A state dict of whole values on the CPU. Files are trusted: objects in them are unpickled.

    Raises:
        SMPCheckpointError: a checkpoint that is not there, or not complete.
    """
    root = Path(checkpoint_dir)
    if tag is None:
        newest = root / "newest"
        if not newest.is_file():
            raise SMPCheckpointError(f"no tag was given, and {newest} is not there")
        tag = newest.read_text(encoding="utf-8").strip()
    folder = root / (tag.removesuffix("_partial") + "_partial")
    slices = folder / "slices.json"
    if (folder / "model_0.pt").is_file() or not slices.is_file():
        return _of_tensor_rank(folder, "", dtype)
    axes = slices_from_json(slices.read_text(encoding="utf-8"), str(slices)).axes
    names = sorted(folder.glob("model_0_*.pt"), key=_number)
    return joined_entries(
        [_of_tensor_rank(folder, f"0_{_number(file)}_", dtype) for file in names], axes
    )


def _number(file: Path) -> int:
    return int(file.stem.split("_")[-1])


def _of_tensor_rank(folder: Path, prefix: str, dtype: torch.dtype) -> dict[str, Any]:
    """Whole values of one tensor rank; the names of its files begin with ``prefix``."""
    rest = read_object(folder / f"model_{prefix.rstrip('_') or 0}.pt", map_location="cpu")
    files = sorted(folder.glob(f"optimizer_{prefix}*.pt"), key=_number)
    parts = [read_object(file, map_location="cpu", mmap=True) for file in files]
    wanted = parts[0]["partition_count"] if parts else "no"
    if not parts or len(parts) != wanted:
        raise SMPCheckpointError(f"{folder} holds {len(parts)} files of {wanted} shards")
    for part in parts:
        check_format(part, str(folder))
    saved = SavedParts(parts)
    whole: dict[str, Any] = dict(rest["module"])
    for name in saved.names:
        shape = saved.shape_of(name)
        master = saved.values_of(name, 0, int(torch.Size(shape).numel()))["master"]
        whole[name] = master.view(shape).to(dtype)
    return whole


@overload
def get_param_shapes(model: nn.Module) -> dict[str, torch.Size]: ...


@overload
def get_param_shapes(model: nn.Module, optimizer: Any) -> list[dict[str, torch.Size]]: ...


def get_param_shapes(
    model: nn.Module, optimizer: Any = None
) -> dict[str, torch.Size] | list[dict[str, torch.Size]]:
    """Shapes by name, for ``user_content`` of a checkpoint: of all parameters or, with an
    optimizer, of those of each of its groups, in the order in which their masters are saved.

    >>> model = nn.Linear(2, 1)
    >>> get_param_shapes(model)
    {'weight': torch.Size([1, 2]), 'bias': torch.Size([1])}
    >>> groups = [{"params": [model.bias]}, {"params": [model.weight]}]
    >>> get_param_shapes(model, torch.optim.SGD(groups, lr=1.0))
    [{'bias': torch.Size([1])}, {'weight': torch.Size([1, 2])}]
    """
    if optimizer is None:
        return {name: _shape(parameter) for name, parameter in model.named_parameters()}
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups: Any = getattr(optimizer, "fp16_groups", None)  # those that masters stand for
    if groups is None:
        groups = [group["params"] for group in optimizer.param_groups]
    return [{names[p]: _shape(p) for p in group if p in names} for group in groups]


def _shape(parameter: Any) -> torch.Size:
    shape: torch.Size = getattr(parameter, "ds_shape", parameter.shape)
    return shape


def get_buffer_names(model: nn.Module) -> list[str]:
    """Names of buffers, for ``user_content`` of a checkpoint.

    >>> get_buffer_names(nn.BatchNorm1d(2))
    ['running_mean', 'running_var', 'num_batches_tracked']
    """
    return [name for name, _ in model.named_buffers()]

# SPDX-License-Identifier: Apache-2.0
"""``torch.load`` of local checkpoints: sharded tensors are made of them, and nothing runs."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import smdistributed.sagemaker  # noqa: F401 - registers the classes
import torch
import torch.distributed as dist
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec


@pytest.fixture(autouse=True)
def one_rank(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_sharded_tensors_come_back(tmp_path: Path) -> None:
    spec = ChunkShardingSpec(dim=0, placements=["rank:0/cpu"])
    saved = sharded_tensor.rand(spec, 4, 2)
    torch.save({"weight": saved, "lr": 0.1, "num_params": numpy.prod([2, 4])}, tmp_path / "0.pt")

    read = torch.load(tmp_path / "0.pt")

    assert (read["num_params"], read["lr"]) == (8, 0.1)
    assert torch.equal(read["weight"].local_tensor(), saved.local_tensor())


class Hostile:
    """Fetches an attribute, as a first step to calling it."""

    def __reduce__(self) -> Any:
        return getattr, (ShardedTensor, "__init__")


def test_attributes_of_anything_else_are_refused(tmp_path: Path) -> None:
    torch.save({"weight": Hostile()}, tmp_path / "0.pt")

    with pytest.raises(pickle.UnpicklingError, match="asks for __init__ of"):
        torch.load(tmp_path / "0.pt")

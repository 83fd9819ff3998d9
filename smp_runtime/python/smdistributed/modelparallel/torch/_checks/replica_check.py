# SPDX-License-Identifier: Apache-2.0
"""Checks that all ranks wrap the same model; with others, values would go to the wrong places."""

from __future__ import annotations

import hashlib

from torch import nn

from smdistributed.modelparallel.torch._session import comm, ranks
from smdistributed.modelparallel.torch.exceptions import SMPPartitionError


def check_replicas(module: nn.Module) -> None:
    """Compares names, shapes and types of parameters and buffers. Collective over all ranks.

    Raises SMPPartitionError on all of them, naming a rank and the first difference.
    """
    if ranks.size() == 1:
        return
    own = _description(module)
    digest = hashlib.sha256("\n".join(own).encode()).hexdigest()
    digests = comm.allgather(digest, comm.CommGroup.WORLD)
    if len(set(digests)) == 1:
        return
    descriptions = comm.allgather(own, comm.CommGroup.WORLD)
    rank = next(r for r, one in enumerate(digests) if one != digests[0])
    raise SMPPartitionError(
        f"rank {rank} built another model than rank 0: "
        f"{difference(descriptions[0], descriptions[rank])}; build it from the same settings on "
        "all ranks"
    )


def difference(first: list[str], other: list[str]) -> str:
    """
    >>> difference(["a (2, 3) float32", "b (1,) float32"], ["a (2, 4) float32"])
    'a (2, 4) float32 there, a (2, 3) float32 on rank 0'
    >>> difference(["a (2,) float32"], ["a (2,) float32", "b (1,) float32"])
    'b (1,) float32 there, nothing on rank 0'
    """
    longest = max(len(first), len(other))
    padded = [(lines + ["nothing"] * longest)[:longest] for lines in (first, other)]
    here, there = next(pair for pair in zip(*padded, strict=True) if pair[0] != pair[1])
    return f"{there} there, {here} on rank 0"


def _description(module: nn.Module) -> list[str]:
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return [
        f"{name} {tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        for name, tensor in tensors
    ]

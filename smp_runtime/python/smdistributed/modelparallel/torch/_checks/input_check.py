# SPDX-License-Identifier: Apache-2.0
"""Checks that ranks were fed as the settings say.

In a tensor-parallel group distributed layers exchange batches: other shapes on one rank would hang
or mix up samples, and other data with ``prescaled_batch`` would train on a blend of both, without a
word. Replicas that are fed the same batches compute the same gradients each, and the job learns as
one of them would alone: nothing else shows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._objects.containers import is_sequence
from smdistributed.modelparallel.torch._ranks import comm, log, ranks
from smdistributed.modelparallel.torch.exceptions import SMPValidationError

Input = list[tuple[str, str, str]]  # for each tensor: place, shape and type, digest


def check_inputs(arguments: Mapping[str, Any], prescaled: bool) -> None:
    """Compares the tensors among a step's arguments over the tensor-parallel group. Collective.

    Shapes have to be equal; with ``prescaled`` values, too. Raises SMPValidationError on all ranks,
    naming argument and ranks.
    """
    own = input_tensors(arguments, with_digests=prescaled)
    reports = comm.allgather(own, comm.CommGroup.TP_GROUP)
    found = difference(reports, ranks.get_tp_group())
    if found is None:
        return
    expected = (
        "prescaled_batch is true, so all ranks of a tensor-parallel group feed the same batch; "
        "shard data by rdp_rank of rdp_size, or set prescaled_batch to false"
        if prescaled
        else "all ranks of a tensor-parallel group feed batches of one shape; pad them alike and "
        "drop the last batch"
    )
    raise SMPValidationError(f"{found}; {expected}")


def input_tensors(arguments: Mapping[str, Any], with_digests: bool) -> Input:
    """All tensors among a step's arguments. On a GPU digests wait for it."""
    return [
        (where, f"{tuple(tensor.shape)} {tensor.dtype}", digest(tensor) if with_digests else "")
        for where, tensor in _tensors(arguments)
    ]


def difference(reports: list[Input], names: list[int]) -> str | None:
    """First difference between what the ranks were fed; None if all agree.

    >>> difference([[("x", "(2,) torch.float32", "")], [("x", "(3,) torch.float32", "")]], [4, 5])
    'argument x is (2,) torch.float32 on rank 4 and (3,) torch.float32 on rank 5'
    """
    first = reports[0]
    for rank, report in zip(names[1:], reports[1:], strict=True):
        for one, other in zip(first, report, strict=False):
            if one[:2] != other[:2]:
                here, there = (f"{item[1]} on rank" for item in (one, other))
                return f"argument {one[0]} is {here} {names[0]} and {there} {rank}"
            if one[2] != other[2]:
                return f"argument {one[0]} has other values on rank {rank} than on rank {names[0]}"
        if len(first) != len(report):
            return (
                f"rank {names[0]} was given {len(first)} tensors as arguments and rank {rank} "
                f"{len(report)}"
            )
    return None


def digest(tensor: torch.Tensor) -> str:
    """Of type and shape nothing is in it."""
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(raw.numpy().tobytes(), digest_size=16).hexdigest()


def _tensors(value: Any, where: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield where, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{where}[{key!r}]" if where else str(key))
    elif is_sequence(value):
        for index, item in enumerate(value):
            yield from _tensors(item, f"{where}[{index}]")


_STEPS = 20  # within which the other replicas have made their first one


class ReplicaBatches:
    """Compares the first training batch of all replicas, and warns on rank 0. Nobody waits for
    another rank: each writes a digest to the store, and rank 0 looks whether they are there.

    Args:
        prescaled: whether the ranks of a tensor-parallel group share a batch.
    """

    def __init__(self, session: _runtime.Session, prescaled: bool) -> None:
        self._store, self._prescaled = session.store, prescaled
        self._steps = 0
        self._own: Input = []

    @property
    def done(self) -> bool:
        """No further batch is of interest."""
        return self._steps >= (_STEPS if ranks.rank() == 0 else 1)

    def before_step(self, arguments: Mapping[str, Any]) -> None:
        """A training step begins with these arguments, on a first rank of a pipeline."""
        self._steps += 1
        if self._steps == 1:
            self._own = input_tensors(arguments, with_digests=True)
            self._store.set(_key(ranks.rank()), str(self._own))
        elif self._own and ranks.rank() == 0:
            self._compare()

    def _compare(self) -> None:
        group = ranks.get_rdp_group() if self._prescaled else ranks.get_dp_group()
        others = [rank for rank in group if rank != 0]
        if not self._store.check([_key(rank) for rank in others]):
            return
        self._steps = _STEPS
        own = str(self._own)
        alike = [rank for rank in others if self._store.get(_key(rank)).decode() == own]
        if alike:
            kind = "rdp" if self._prescaled else "dp"
            log.warning(
                f"the first batch of rank{'s' * (len(alike) > 1)} {', '.join(map(str, alike))} is "
                "that of rank 0: replicas that train on the same samples learn what one learns. "
                "Give each its own, as by torch.utils.data.DistributedSampler(dataset, "
                f"num_replicas=smp.{kind}_size(), rank=smp.{kind}_rank())"
            )


def _key(rank: int) -> str:
    return f"first_batch/{rank}"

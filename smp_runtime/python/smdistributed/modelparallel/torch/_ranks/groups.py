# SPDX-License-Identifier: Apache-2.0
"""Groups of c10d, by the names of their backends."""

from __future__ import annotations

import importlib

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPDeviceError


def backend_for(requested: str) -> str:
    """The c10d backends of groups for tensors: NCCL where CUDA is, Gloo for the CPU; or our own.

    Raises SMPDeviceError when NCCL is asked for without a GPU.
    """
    if requested == "smddp":
        return requested
    if requested == "nccl" and not torch.cuda.is_available():
        raise SMPDeviceError(
            "ddp_dist_backend=nccl needs a CUDA device, and this process sees none; use auto"
        )
    if requested == "gloo" or not torch.cuda.is_available():
        return "gloo"
    return "cpu:gloo,cuda:nccl"


def backend_by_host(requested: str) -> str:
    """The backend of groups for shared state that cross between hosts once, if there is one.

    They are on the CPU, unless the job asks for another backend: ranks of a host then share memory.
    """
    on_cpu = requested == "auto" and not torch.cuda.is_available()
    return "smddp" if on_cpu or requested == "smddp" else ""


def make_group(request: _runtime.GroupRequest) -> dist.ProcessGroup:
    """A group that torch.distributed knows. Collective over its ranks.

    Not by ``dist.new_group``: it names a group that its members alone make by how many groups this
    rank has, and the members of a pipeline group have different ones.
    """
    register(request.backend)
    world = c10d._get_default_group()
    group, _ = c10d._new_process_group_helper(
        len(request.ranks),
        request.ranks.index(world.rank()),
        request.ranks,
        dist.Backend(request.backend),
        c10d._get_default_store(),
        c10d.GroupName(request.name),
        timeout=request.timeout,
        device_id=world.bound_device_id,
        group_desc=request.description,
    )
    c10d._world.pg_group_ranks[group] = {rank: index for index, rank in enumerate(request.ranks)}
    assert isinstance(group, dist.ProcessGroup)  # this rank is a member
    return group


def register(backend: str) -> None:
    """Makes our own backend known, when it is asked for only: it loads a library. Its variables are
    for scripts without us."""
    if backend == "smddp":
        importlib.import_module("smdistributed.dataparallel.torch.backend_registration").register()

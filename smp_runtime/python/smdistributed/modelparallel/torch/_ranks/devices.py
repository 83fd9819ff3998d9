# SPDX-License-Identifier: Apache-2.0
"""The device of this rank, and whether another rank computes on it, too."""

from __future__ import annotations

import torch
from torch._C._distributed_c10d import Store

from smdistributed import _runtime
from smdistributed.modelparallel.torch._ranks import log
from smdistributed.modelparallel.torch.exceptions import SMPDeviceError


def computing_device() -> torch.device:
    """Device of this rank's part of a model: the current CUDA device, the CPU without one."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def tell_of_missing_gpu_code(rank: int) -> None:
    """Warns, on rank 0, where torch has a GPU and this build can only use it through torch."""
    if rank == 0 and torch.cuda.is_available() and not _runtime.HAS_CUDA:
        log.warning(
            "this build of the library has no GPU code, for no nvcc of torch's CUDA release was "
            "found when it was built: tensors go between GPUs through the memory of the host, and "
            "optimizers and layers take torch's kernels. Install nvcc (pip install "
            '"cuda-toolkit[cccl,crt,cudart,nvcc,nvvm]==13.0.2") and build again with '
            "-DSMP_WITH_CUDA=ON"
        )


def check_own_gpu(store: Store, rank: int, local_rank: int, *, by_nccl: bool) -> None:
    """Claims the current CUDA device for this rank in ``store``; does not wait for other ranks.

    Without a GPU it does nothing. A rank may claim the same device again.

    Args:
        store: of the job; the claims are its keys ``gpu/...``.
        rank, local_rank: of this process, among all and on its host.
        by_nccl: whether groups of the job use NCCL, which takes no GPU twice; else two ranks of one
            GPU work, and there is only a warning.

    Raises:
        SMPDeviceError: ``by_nccl``, and another rank has the device.
    """
    if not torch.cuda.is_available():
        return
    number = torch.cuda.current_device()
    gpu = str(torch.cuda.get_device_properties(number).uuid)
    owner = int(store.compare_set(f"gpu/{gpu}", "", str(rank)))
    if owner == rank:
        return
    shared = f"ranks {owner} and {rank} both compute on the GPU {gpu}, here CUDA device {number}"
    count = torch.cuda.device_count()
    if count > local_rank:
        cure = (
            f"this host shows {count}: call torch.cuda.set_device(smp.local_rank()) behind "
            "smp.init() and before smp.DistributedModel"
        )
    else:
        cure = (
            f"this host shows {count} to a rank with the local number {local_rank}: start one rank "
            "for each GPU"
        )
    if by_nccl:
        raise SMPDeviceError(
            f"{shared}, and NCCL takes one rank on each. {cure[0].upper()}{cure[1:]}; or, to have "
            'ranks share a GPU, add "ddp_dist_backend": "smddp" to the settings, which then goes '
            "through the memory of the host"
        )
    log.warning(f"{shared}; what they exchange goes through the memory of the host; {cure}")

# SPDX-License-Identifier: Apache-2.0
"""Numbers, sizes and members of this rank's groups.

All raise SMPNotInitializedError before ``smp.init()``.

>>> import smdistributed.modelparallel.torch as smp
>>> smp.init()
>>> smp.rank(), smp.size(), smp.pp_rank(), smp.dp_size(), smp.get_mp_group()
(0, 1, 0, 1, [0])
>>> smp.shutdown()
>>> try:
...     smp.rank()
... except smp.exceptions.SMPNotInitializedError as error:
...     print(error)
smp.rank was used before smp.init(); call smp.init() first
"""

from __future__ import annotations

import torch.distributed as dist

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPConfigError
from smdistributed.modelparallel.torch.state_mod import state


def _groups(what: str) -> _runtime.Groups:
    return state.require_initialized(f"smp.{what}").groups


def rank() -> int:
    """Number of this process among all."""
    return state.require_initialized("smp.rank").ranks.rank


def size() -> int:
    """Number of processes."""
    return state.require_initialized("smp.size").ranks.size


def local_rank() -> int:
    """Number of this process among those of its host."""
    value = state.require_initialized("smp.local_rank").ranks.local_rank
    assert value is not None  # init completes it
    return value


def local_size() -> int:
    """Number of processes on this host."""
    value = state.require_initialized("smp.local_size").ranks.local_size
    assert value is not None  # init completes it
    return value


def pp_rank() -> int:
    """Number of this rank among the partitions of its model."""
    return _groups("pp_rank").index("PP")


def pp_size() -> int:
    """Number of partitions."""
    return len(_groups("pp_size").ranks("PP"))


def tp_rank() -> int:
    """Number of this rank among those that split its layers."""
    return _groups("tp_rank").index("TP")


def tp_size() -> int:
    """Number of ranks that split a layer."""
    return len(_groups("tp_size").ranks("TP"))


def rdp_rank() -> int:
    """Number of this rank's copy of the model."""
    return _groups("rdp_rank").index("RDP")


def rdp_size() -> int:
    """Number of copies of the model."""
    return len(_groups("rdp_size").ranks("RDP"))


def dp_rank() -> int:
    """Number of this rank among those with the same partition."""
    return _groups("dp_rank").index("DP")


def dp_size() -> int:
    """Number of ranks with the same partition: ``tp_size() * rdp_size()``."""
    return len(_groups("dp_size").ranks("DP"))


def mp_rank() -> int:
    """Number of this rank among those that hold one copy of the model."""
    return _groups("mp_rank").index("MP")


def mp_size() -> int:
    """Number of ranks that hold one copy of the model: ``pp_size() * tp_size()``."""
    return len(_groups("mp_size").ranks("MP"))


def get_pp_group() -> list[int]:
    """Global ranks of this rank's pipeline: same tp and rdp rank."""
    return list(_groups("get_pp_group").ranks("PP"))


def get_tp_group() -> list[int]:
    """Global ranks that split a layer with this one: same pp and rdp rank."""
    return list(_groups("get_tp_group").ranks("TP"))


def get_rdp_group() -> list[int]:
    """Global ranks that hold the same parameters: same pp and tp rank."""
    return list(_groups("get_rdp_group").ranks("RDP"))


def get_dp_group() -> list[int]:
    """Global ranks with the same partition: same pp rank."""
    return list(_groups("get_dp_group").ranks("DP"))


def get_mp_group() -> list[int]:
    """Global ranks that hold one copy of the model with this one: same rdp rank."""
    return list(_groups("get_mp_group").ranks("MP"))


def _process_group(what: str, kind: str) -> dist.ProcessGroup:
    groups = _groups(what)
    if not state.cfg.ddp:
        raise SMPConfigError(
            f"smp.{what} needs process groups, which exist with data parallelism only; "
            'add "ddp": true to the settings'
        )
    return groups.user_group(kind)


def get_world_process_group() -> dist.ProcessGroup:
    """A ``torch.distributed`` group of all ranks. Needs ``ddp``, like all of these."""
    return _process_group("get_world_process_group", "WORLD")


def get_mp_process_group() -> dist.ProcessGroup:
    """The ranks of :func:`get_mp_group`."""
    return _process_group("get_mp_process_group", "MP")


def get_dp_process_group() -> dist.ProcessGroup:
    """The ranks of :func:`get_dp_group`."""
    return _process_group("get_dp_process_group", "DP")


def get_pp_process_group() -> dist.ProcessGroup:
    """The ranks of :func:`get_pp_group`."""
    return _process_group("get_pp_process_group", "PP")


def get_tp_process_group() -> dist.ProcessGroup:
    """The ranks of :func:`get_tp_group`."""
    return _process_group("get_tp_process_group", "TP")


def get_rdp_process_group() -> dist.ProcessGroup:
    """The ranks of :func:`get_rdp_group`."""
    return _process_group("get_rdp_process_group", "RDP")

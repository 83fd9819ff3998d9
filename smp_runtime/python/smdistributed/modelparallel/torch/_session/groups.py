# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks by name, and the c10d groups that belong to them."""

from __future__ import annotations

import importlib
import zlib
from datetime import timedelta
from enum import Enum

import torch
import torch.distributed as dist

from smdistributed import _runtime
from smdistributed.modelparallel.torch._session.store_barriers import StoreBarriers
from smdistributed.modelparallel.torch.exceptions import SMPDeviceError


class CommGroup(Enum):
    """Which ranks a communication reaches: of each kind the group that this rank is in.

    ``WORLD``: all ranks. ``MP_GROUP``: one copy of the model. ``PP_GROUP``: its pipeline stages.
    ``TP_GROUP``: the ranks that split a layer. ``DP_GROUP``: the same stage of all copies.
    ``RDP_GROUP``: the same parameters.
    """

    WORLD = "WORLD"
    MP_GROUP = "MP"
    DP_GROUP = "DP"
    PP_GROUP = "PP"
    TP_GROUP = "TP"
    RDP_GROUP = "RDP"


class RankType(Enum):
    """How a rank number is meant: within which of the caller's groups, as in ``CommGroup``."""

    WORLD_RANK = "WORLD"
    MP_RANK = "MP"
    DP_RANK = "DP"
    PP_RANK = "PP"
    TP_RANK = "TP"
    RDP_RANK = "RDP"


def backend_for(requested: str) -> str:
    """The c10d backends of user-visible groups: NCCL where CUDA is, Gloo for the CPU; or our own.

    Raises SMPDeviceError when NCCL is asked for without a GPU.
    """
    if requested == "smddp":
        # Only when asked for: it loads a library. Its variables are for scripts without us.
        importlib.import_module("smdistributed.dataparallel.torch.backend_registration").register()
        return requested
    if requested == "nccl" and not torch.cuda.is_available():
        raise SMPDeviceError(
            "ddp_dist_backend=nccl needs a CUDA device, and this process sees none; use auto"
        )
    if requested == "gloo" or not torch.cuda.is_available():
        return "gloo"
    return "cpu:gloo,cuda:nccl"


class Groups:
    """The groups of one rank. Groups with the same ranks and purpose share one c10d group."""

    def __init__(
        self, mesh: _runtime.Mesh, barriers: StoreBarriers, rank: int, requested: str, backend: str
    ) -> None:
        self._rank = rank
        self._requested, self._backend = requested, backend
        self._barriers = barriers
        self._mesh = mesh
        self._ranks = {
            kind: self.ranks_of(kind, rank) for kind in ("WORLD", "MP", "DP", "PP", "TP", "RDP")
        }
        self._made: dict[tuple[str, tuple[int, ...]], dist.ProcessGroup] = {}

    def ranks(self, kind: str) -> list[int]:
        """Global ranks of this rank's group, ascending."""
        return self._ranks[kind]

    def ranks_of(self, kind: str, rank: int) -> list[int]:
        """The same of another rank."""
        return self._mesh.group(getattr(_runtime.Group, kind), rank)

    def index(self, kind: str) -> int:
        """This rank's number within its group."""
        return self._ranks[kind].index(self._rank)

    def user_group(self, kind: str) -> dist.ProcessGroup:
        """The group that scripts get; only they put operations on it."""
        return self._group("user", kind, self._backend)

    def internal_group(self, kind: str) -> dist.ProcessGroup:
        """A group for tensors of the model, on its device."""
        return self._group("internal", kind, self._backend)

    def object_group(self, kind: str) -> dist.ProcessGroup:
        """A CPU group for pickled objects."""
        return self._group("object", kind, "gloo")

    def make_tensor_groups(self) -> None:
        """Makes the groups of the tensor-parallel ranks that some partitions alone may use. Torch
        names a group by how many its maker has made, so all ranks make the same ones."""
        self.object_group("TP")
        self.internal_group("TP")

    def new_cpu_group(self, kind: str, timeout: timedelta) -> dist.ProcessGroup:
        """A fresh Gloo group of the caller's own. Collective over the group."""
        return self._new_group(self._ranks[kind], "gloo", timeout)

    @property
    def shares_by_host(self) -> bool:
        """Whether groups for shared state are ``smddp``'s, which cross between hosts once. They are
        on the CPU, unless the job asks for another backend: ranks of a host then share memory."""
        on_cpu = self._requested == "auto" and not torch.cuda.is_available()
        return on_cpu or self._requested == "smddp"

    def group_of(
        self, purpose: str, ranks: list[int], *, by_host: bool = True
    ) -> dist.ProcessGroup:
        """A group of our own for tensors of the model, of any ranks. Collective over them."""
        ours = by_host and self.shares_by_host
        return self._made_for(purpose, ranks, backend_for("smddp") if ours else self._backend)

    def cpu_group_of(self, purpose: str, ranks: list[int]) -> dist.ProcessGroup:
        """The same for tensors on the CPU."""
        return self._made_for(purpose, ranks, "gloo")

    def _group(self, purpose: str, kind: str, backend: str) -> dist.ProcessGroup:
        # Made on first use by its members, who come here in the same order on every rank: what
        # asks for a group is collective over it.
        return self._made_for(purpose, self._ranks[kind], backend)

    def _made_for(self, purpose: str, ranks: list[int], backend: str) -> dist.ProcessGroup:
        key = (purpose, tuple(ranks))
        if key not in self._made:
            self._made[key] = self._new_group(ranks, backend, self._barriers.timeout)
        return self._made[key]

    def _new_group(self, ranks: list[int], backend: str, timeout: timedelta) -> dist.ProcessGroup:
        # Torch waits for the members, too, but knows none by name.
        members = _description(ranks)
        self._barriers.all(
            f"a first call over {members}", f"group/{zlib.crc32(str(ranks).encode())}", ranks
        )
        group = dist.new_group(
            ranks,
            timeout=timeout,
            backend=backend,
            use_local_synchronization=True,
            group_desc=members,
        )
        assert isinstance(group, dist.ProcessGroup)  # this rank is a member
        _runtime.leave_job_rank(group.group_name, self._rank)
        return group


def _description(ranks: list[int]) -> str:
    """For errors: who is in the group.

    >>> _description([0, 2, 4])
    'ranks 0, 2, 4'
    >>> _description(list(range(0, 40, 2)))
    'ranks 0, 2, 4, ..., 38'
    """
    shown = [str(rank) for rank in ranks]
    return "ranks " + ", ".join([*shown[:3], "...", shown[-1]] if len(shown) > 8 else shown)

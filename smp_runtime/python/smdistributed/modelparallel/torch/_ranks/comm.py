# SPDX-License-Identifier: Apache-2.0
"""Objects between ranks: blocking, over the CPU, for control and not for training data.

Messages between two ranks with one ``RankType`` arrive in the order in which they were sent. Every
wait ends with the time of ``SMP_TIMEOUT_SECONDS``, with an error that names the absent ranks. CUDA
tensors in objects arrive on the receiver's device.

>>> import smdistributed.modelparallel.torch as smp
>>> smp.init()
>>> smp.allgather({"loss": 0.5}, smp.DP_GROUP)
[{'loss': 0.5}]
>>> smp.broadcast("nobody listens", smp.WORLD)
>>> smp.barrier()
>>> smp.shutdown()
"""

from __future__ import annotations

import io
import pickle
from enum import Enum
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._ranks.tensor_bytes import bytes_of
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state

_PIECE_BYTES = 64 * 1024 * 1024  # of a tensor in a message, which is copied on its way


class CommGroup(Enum):
    """Groups over which ranks communicate: of each kind the one that this rank is in.

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
    """Group within which a rank number counts, one of the caller's, as in ``CommGroup``."""

    WORLD_RANK = "WORLD"
    MP_RANK = "MP"
    DP_RANK = "DP"
    PP_RANK = "PP"
    TP_RANK = "TP"
    RDP_RANK = "RDP"


def _on_current_device(tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    # The sender's device number means nothing here, and touching it would cost its memory.
    if torch.cuda.is_available():
        tensor = tensor.to(torch.device("cuda", torch.cuda.current_device()))
    return tensor.requires_grad_(requires_grad)


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor) and obj.is_cuda:
            return _on_current_device, (obj.detach().cpu(), obj.requires_grad)
        return NotImplemented


def encode(obj: Any) -> bytes:
    """Raises SMPValidationError for an object that pickle refuses.

    >>> decode(encode({"a": [1, None]}))
    {'a': [1, None]}
    """
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(obj)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise SMPValidationError(
            f"an object of type {type(obj).__name__} cannot travel to another rank: {error}"
        ) from error
    return file.getvalue()


def decode(data: bytes) -> Any:
    """Only for bytes of a rank of the same job: unpickling runs code."""
    return pickle.loads(data)


def broadcast(obj: Any, group: CommGroup) -> None:
    """Sends ``obj`` to the others of ``group``, who call ``recv_from``.

    Blocks until all of them have received it. In a group of one it has no effect.

    Args:
        obj: anything that pickle takes.
        group: which of this rank's groups, such as ``smp.DP_GROUP``.

    Raises:
        SMPValidationError: ``group`` is no member of ``CommGroup``, or pickle refuses ``obj``.
        SMPCommTimeoutError: a receiver did not come in time; the text names it.
        SMPConnectionError: a receiver was lost.
    """
    session = state.require_initialized("smp.broadcast")
    kind = _kind("smp.broadcast", group, CommGroup)
    session.objects.broadcast("smp.broadcast", kind, encode(obj))


def send(obj: Any, dest_rank: int, rank_type: RankType) -> None:
    """Sends ``obj`` to a member of this rank's group of ``rank_type``, which calls ``recv_from``.

    Blocks until it has received it. What a rank sends to itself is kept, without blocking.

    Args:
        obj: anything that pickle takes.
        dest_rank: the receiver's number in the group.
        rank_type: in which group the number is meant, such as ``smp.RankType.PP_RANK``.

    Raises:
        SMPValidationError: a wrong type, a rank that the group does not have, or an ``obj`` that
            pickle refuses.
        SMPCommTimeoutError: the receiver did not come in time.
        SMPConnectionError: the receiver was lost.
    """
    session = state.require_initialized("smp.send")
    kind = _kind("smp.send", rank_type, RankType)
    destination = _member("smp.send", session, kind, dest_rank)
    session.objects.send("smp.send", kind, encode(obj), destination)


def recv_from(src_rank: int, rank_type: RankType) -> Any:
    """Returns what a member of this rank's group of ``rank_type`` sent, or broadcast over it.

    Blocks until it has come.

    Args:
        src_rank: the sender's number in the group.
        rank_type: in which group the number is meant; for a broadcast the one of its group.

    Raises:
        SMPValidationError: a wrong type, a rank that the group does not have, or this rank itself
            when it has sent nothing.
        SMPCommTimeoutError: the sender did not come in time.
        SMPConnectionError: the sender was lost.
    """
    session = state.require_initialized("smp.recv_from")
    kind = _kind("smp.recv_from", rank_type, RankType)
    source = _member("smp.recv_from", session, kind, src_rank)
    if source != session.ranks.rank:
        return decode(session.objects.receive("smp.recv_from", kind, source))
    own = session.objects.take_own(kind)
    if own is None:
        raise SMPValidationError(
            f"smp.recv_from({src_rank}, {rank_type}) is this rank itself, which sent nothing"
        )
    return decode(own)


def allgather(obj: Any, group: CommGroup) -> list[Any]:
    """The objects of all members of ``group``, by their rank in it.

    Collective over the group: blocks until all members have called it.

    Args:
        obj: anything that pickle takes; sizes may differ between ranks.
        group: which of this rank's groups.

    Returns:
        As many objects as the group has members, the same on all of them.

    Raises:
        SMPValidationError: ``group`` is no member of ``CommGroup``, or pickle refuses ``obj``.
        SMPCommTimeoutError: members did not come in time; the text names them.
        SMPConnectionError: a member was lost.
    """
    session = state.require_initialized("smp.allgather")
    kind = _kind("smp.allgather", group, CommGroup)
    return [decode(data) for data in session.objects.all_gather("smp.allgather", kind, encode(obj))]


def allgather_among(what: str, obj: Any, label: str, ranks: list[int]) -> list[Any]:
    """The same over ``ranks`` of the job, by the CPU group that they have for ``label``."""
    session = state.require_initialized(what)
    return [
        decode(data) for data in session.objects.all_gather_among(what, label, ranks, encode(obj))
    ]


def send_tensor(what: str, tensor: torch.Tensor, dest_rank: int, rank_type: RankType) -> None:
    """Sends the elements to a rank that calls ``receive_tensor``, a piece at a time. Blocks until
    it has them."""
    session = state.require_initialized(what)
    kind = _kind(what, rank_type, RankType)
    destination = _member(what, session, kind, dest_rank)
    data = bytes_of(tensor)
    for start in range(0, len(data), _PIECE_BYTES):
        piece = bytes(data[start : start + _PIECE_BYTES])
        session.objects.send(what, kind, piece, destination)


def receive_tensor(
    what: str, like: torch.Tensor, src_rank: int, rank_type: RankType
) -> torch.Tensor:
    """What a rank sends with ``send_tensor``, a tensor of the shape and type of ``like``; on the
    CPU."""
    session = state.require_initialized(what)
    kind = _kind(what, rank_type, RankType)
    source = _member(what, session, kind, src_rank)
    tensor = torch.empty(like.shape, dtype=like.dtype)
    data = bytes_of(tensor)
    for start in range(0, len(data), _PIECE_BYTES):
        data[start : start + _PIECE_BYTES] = session.objects.receive(what, kind, source)
    return tensor


def broadcast_from_rank0(obj: Any) -> Any:
    """Object that global rank 0 gave, on all ranks. All ranks call it."""
    ranks = state.require_initialized("smp.broadcast").ranks
    if ranks.size == 1:
        return obj
    if ranks.rank == 0:
        broadcast(obj, CommGroup.WORLD)
        return obj
    return recv_from(0, RankType.WORLD_RANK)


def barrier(group: CommGroup = CommGroup.WORLD) -> None:
    """Blocks until all members of ``group`` have called it.

    Raises:
        SMPValidationError: ``group`` is no member of ``CommGroup``.
        SMPCommTimeoutError: members did not come in time; the text names them.
    """
    _barrier("smp.barrier", group)


def mp_barrier() -> None:
    """``barrier(smp.MP_GROUP)``: the ranks of one copy of the model."""
    _barrier("smp.mp_barrier", CommGroup.MP_GROUP)


def dp_barrier() -> None:
    """``barrier(smp.DP_GROUP)``: the ranks with the same partition."""
    _barrier("smp.dp_barrier", CommGroup.DP_GROUP)


def pp_barrier() -> None:
    """``barrier(smp.PP_GROUP)``: the ranks of a pipeline."""
    _barrier("smp.pp_barrier", CommGroup.PP_GROUP)


def tp_barrier() -> None:
    """``barrier(smp.TP_GROUP)``: the ranks that split a layer."""
    _barrier("smp.tp_barrier", CommGroup.TP_GROUP)


def rdp_barrier() -> None:
    """``barrier(smp.RDP_GROUP)``: the ranks that hold the same parameters."""
    _barrier("smp.rdp_barrier", CommGroup.RDP_GROUP)


def _barrier(what: str, group: CommGroup) -> None:
    session = state.require_initialized(what)
    kind = _kind(what, group, CommGroup)
    session.barriers.all(f"{what} over {kind}", f"barrier/{kind}", session.groups.ranks(kind))


def _kind(what: str, given: Any, expected: type[CommGroup] | type[RankType]) -> str:
    if not isinstance(given, expected):
        names = ", ".join(f"smp.{expected.__name__}.{member.name}" for member in expected)
        raise SMPValidationError(f"{what} got {given!r}; expected one of {names}")
    return str(given.value)


def _member(what: str, session: _runtime.Session, kind: str, index: int) -> int:
    ranks = session.groups.ranks(kind)
    if not isinstance(index, int) or not 0 <= index < len(ranks):
        raise SMPValidationError(
            f"{what} names rank {index!r} of its {kind} group, which has ranks 0 to "
            f"{len(ranks) - 1} (global {ranks})"
        )
    return ranks[index]

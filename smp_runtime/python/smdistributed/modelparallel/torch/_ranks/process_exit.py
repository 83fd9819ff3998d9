# SPDX-License-Identifier: Apache-2.0
"""Tells whether this process ends because it failed, and whether because another rank did.

A process that failed waits for nobody. One that lost another rank ends last: a launcher reports the
exit code of the first rank that it sees end, and ends the others. Where the other rank has ended
well, as one that has no more batches does, there is nobody to give way to.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

import torch.distributed as dist

from smdistributed.modelparallel.backend.exceptions import SMPConnectionError
from smdistributed.modelparallel.torch.exceptions import SMPCommTimeoutError, SMPStepError

#: [s] For the rank that failed first to end. Where a launcher sees that it has, it ends this one.
_GIVEN_WAY, _LOOK = 10.0, 0.2

_codes: list[int] = []  # exit codes given to sys.exit that end the program
_ended_well: list[Callable[[], bool]] = []  # by job, the last one at the end
_status: Any = vars(SystemExit)["code"]


class _Exit(SystemExit):
    """Raised by ``sys.exit``. Where it ends the program the interpreter reads ``code``, and nothing
    calls the interpreter; who catches it is a caller."""

    @property
    def code(self) -> Any:
        status = _status.__get__(self)
        if sys._getframe().f_back is None:
            _codes.append(_exit_code(status))
        return status

    @code.setter
    def code(self, status: Any) -> None:
        _status.__set__(self, status)


_Exit.__name__ = _Exit.__qualname__ = "SystemExit"


def _exit_code(status: Any) -> int:
    """As the interpreter does: nothing is success, a text is printed and counts as 1."""
    return 0 if status is None else int(status) if isinstance(status, int) else 1


def watch(some_rank_ended_well: Callable[[], bool]) -> None:
    """From now on remembers the code of ``sys.exit``, unless it is caught; exit handlers cannot ask
    for it. That of a ``raise SystemExit`` is not known. An uncaught error that blames another rank
    holds the process up for some seconds, after its traceback, unless ``some_rank_ended_well``."""
    _ended_well.append(some_rank_ended_well)
    if hasattr(sys.exit, "__wrapped__"):
        return
    plain_exit, plain_hook = sys.exit, sys.excepthook

    @functools.wraps(plain_exit)
    def remembering(status: Any = None, /) -> NoReturn:
        if threading.current_thread() is threading.main_thread():
            raise _Exit(status)
        plain_exit(status)

    @functools.wraps(plain_hook)
    def giving_way(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        plain_hook(kind, error, trace)
        if blames_another_rank(error):
            sys.stdout.flush()
            sys.stderr.flush()
            _give_way()

    sys.exit = remembering
    sys.excepthook = giving_way


def _give_way() -> None:
    until = time.monotonic() + _GIVEN_WAY
    with contextlib.suppress(RuntimeError):  # the store went with the rank that failed
        while time.monotonic() < until and not _ended_well[-1]():
            time.sleep(_LOOK)
        return
    time.sleep(max(0, until - time.monotonic()))


def blames_another_rank(error: BaseException) -> bool:
    """True if an error says only that another rank failed or is lost.

    >>> blames_another_rank(SMPStepError("rank 1 failed in step 3: ..."))
    True
    >>> blames_another_rank(SMPStepError("a step was called inside a step"))
    False
    """
    if isinstance(error, SMPStepError):
        return re.match(r"rank \d+ failed in step", str(error)) is not None
    lost = (SMPConnectionError, SMPCommTimeoutError, dist.DistNetworkError, dist.DistStoreError)
    return isinstance(error, lost)


def failure_code() -> int:
    """The exit code of a process that is failing, 0 for one that is not."""
    if getattr(sys, "last_value", None) is not None:
        return 1
    on_its_way = sys.exc_info()[1]
    if isinstance(on_its_way, SystemExit):
        return _exit_code(on_its_way.code)
    return _codes[-1] if _codes else 0

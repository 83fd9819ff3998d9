# SPDX-License-Identifier: Apache-2.0
"""``smp.checkpoint_on_signal``: a stop signal has the job saved before it ends.

Managed Spot training, Slurm and Kubernetes send SIGTERM some time before they kill. One rank that
gets it is enough: before each training step the ranks tell each other whether they did.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.checkpoints import save_checkpoint
from smdistributed.modelparallel.torch._checkpoint.snapshots import wait_for_saves
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch._ranks.devices import computing_device
from smdistributed.modelparallel.torch._ranks.log import info, warning
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state

_CALL = "smp.checkpoint_on_signal"
_TAG = "stopped"
_EXIT_CODE = 128 + signal.SIGTERM  # what a shell says of a process that SIGTERM ended


def checkpoint_on_signal(save: Callable[[], Any] | None = None, path: str | None = None) -> None:
    """Has the job saved when SIGTERM comes, and ended. All ranks call it, on their main threads.
    With ``checkpoint_on_signal`` among ``mp_parameters`` ``smp.init`` calls it without arguments.

    The steps in flight end on all ranks. Before the next training step all of them call ``save``
    together, whichever of them got the signal, and raise ``SystemExit(143)``. Where gradients are
    accumulated over several steps that is before the first one after an update. A step trains if
    gradients are enabled and the model is in training mode. Handlers of SIGTERM that the script
    has set run, too, at once. Processes that the script forks later are not reached by a launcher's
    signal; those that it spawns are, and a data loader whose workers end fails the script.

    Args:
        save: saves what the script needs to go on; by default ``smp.save_checkpoint(path,
            "stopped")``, which ``smp.resume_from_checkpoint(path)`` takes for the newest.
        path: a folder that outlives the job; by default that of ``SM_CHECKPOINT_DIR``, which
            ``train`` sets to what the service keeps.

    Raises:
        SMPNotInitializedError: before ``smp.init()``.
        SMPValidationError: from another thread, with both arguments, or with neither and no
            ``SM_CHECKPOINT_DIR``.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> smp.checkpoint_on_signal(path="/opt/ml/checkpoints")
    >>> smp.shutdown()
    """
    state.require_initialized(_CALL)
    if threading.current_thread() is not threading.main_thread():
        raise SMPValidationError(f"{_CALL} was called in a thread; call it in the main thread")
    if save is not None and path is not None:
        raise SMPValidationError(f"{_CALL} got save and path; path is for where there is no save")
    if save is None:
        save = _default_save(path)
    if state.stop_save is not None:
        state.stop_save.close()
    _keep_signal_from_children()
    state.stop_save = StopSave(save)


def _follow_settings() -> None:
    if state.cfg.checkpoint_on_signal:
        checkpoint_on_signal()


state.when_begun(_follow_settings)


@functools.cache
def _keep_signal_from_children() -> None:
    """Forked children, as the workers of a data loader, get a process group of their own and the
    script's handler: a launcher signals the group of a rank, and a rank whose loader has lost a
    worker fails before it comes to its save."""

    def in_child() -> None:
        if state.stop_save is not None:
            state.stop_save.close()
            state.stop_save = None
            os.setpgid(0, 0)

    os.register_at_fork(after_in_child=in_child)


def _default_save(path: str | None) -> Callable[[], None]:
    folder = path or os.environ.get("SM_CHECKPOINT_DIR", "")
    if not folder:
        raise SMPValidationError(
            f"{_CALL} got no path, and SM_CHECKPOINT_DIR, which train sets, is not set; give the "
            "folder of the checkpoints, or what saves"
        )
    return lambda: save_checkpoint(folder, _TAG)


def _group(session: _runtime.Session) -> dist.ProcessGroup:
    """All ranks, without a wait for a GPU."""
    groups = session.groups
    on_gpu = computing_device().type == "cuda"
    return groups.cpu_group("WORLD") if on_gpu else groups.internal_group("WORLD")


class StopSave:
    """The stop signal of this process, and the save that answers it."""

    def __init__(self, save: Callable[[], Any]) -> None:
        self._save = save
        self._came = False
        self._has_updated = False  # some optimizer has stepped since the last training step
        self._updates = False  # some optimizer has ever stepped
        self._hook = register_optimizer_step_post_hook(self._after_update)
        self._script_handler: Any = None
        self._take_signal()

    def close(self) -> None:
        """The script's handler has the signal for itself again."""
        self._hook.remove()
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self._script_handler)

    def before_step(self) -> None:
        """Saves and raises SystemExit where a rank has got the signal. Ranks that train call it
        together."""
        if threading.current_thread() is threading.main_thread():
            self._take_signal()
        model = state.model
        if not torch.is_grad_enabled() or (model is not None and not model.training):
            return
        gathers = self._updates and not self._has_updated
        self._has_updated = False
        flags = torch.tensor([self._came, gathers], dtype=torch.int32)
        session = state.require_initialized(_CALL)
        session.all_reduce(_CALL, flags, _group(session), dist.ReduceOp.MAX)
        came, gathers = flags.tolist()
        if came and not gathers:
            self._save_and_end()

    def _save_and_end(self) -> None:
        self.close()
        state.stop_save = None  # what saves may run steps
        try:
            self._save()
            wait_for_saves()
            comm.barrier()
        except Exception as error:
            warning(f"SIGTERM came, and the job could not be saved: {error}")
            raise
        if ranks.rank() == 0:
            info(f"SIGTERM came: the job is saved, and ends with exit code {_EXIT_CODE}")
        sys.exit(_EXIT_CODE)

    def _take_signal(self) -> None:
        """Takes the signal from a handler that the script has set since, which runs, too."""
        current = signal.getsignal(signal.SIGTERM)
        if current == self._on_signal:
            return
        self._script_handler = signal.SIG_DFL if current is None else current  # None: C's
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        if callable(self._script_handler):
            self._script_handler(number, frame)

    def _after_update(self, *_: Any) -> None:
        self._has_updated = self._updates = True

# SPDX-License-Identifier: Apache-2.0
"""Start and end of the library in a process: ``init``, ``is_initialized``, ``shutdown``."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from smdistributed import _runtime
from smdistributed.modelparallel.torch._metrics.reports import Reports
from smdistributed.modelparallel.torch._ranks import cuda_on_cpu, log
from smdistributed.modelparallel.torch._ranks.groups import (
    backend_by_host,
    backend_for,
    make_group,
    register,
)
from smdistributed.modelparallel.torch._ranks.process_exit import failure_code, watch
from smdistributed.modelparallel.torch.exceptions import (
    SMPConfigError,
    SMPValidationError,
)
from smdistributed.modelparallel.torch.state_mod import state

_inits = 0  # sets the keys of one init apart from those of an earlier one in the same store


@dataclass
class _Owner:
    """Owner of the session that ``init`` made."""

    process: int
    """The process that joined; its forked children are no ranks."""
    owns_torch: bool
    """``init`` initialised torch.distributed, and shutdown has to end it."""


_owner = _Owner(0, False)


def init(config: Mapping[str, Any] | None = None) -> None:
    """Joins the job: settings, ranks, groups. Call once, on all ranks, before anything else.

    Collective: blocks until all ranks have come, for at most ``SMP_TIMEOUT_SECONDS``. It also
    initialises ``torch.distributed``, unless the script has done so. A second call with equal
    settings has no effect but a warning.

    Args:
        config: settings, by the keys of ``mp_parameters``; those of the job
            (``SM_HP_MP_PARAMETERS``) have precedence.

    Raises:
        SMPConfigError: settings that are unknown, contradict each other, differ between ranks or do
            not fit the number of processes; or a second call with other settings.
        SMPValidationError: ``config`` is no mapping.
        SMPConnectionError: the other ranks are not reached.
        SMPCommTimeoutError: ranks did not come in time; the text names them.
        SMPDeviceError: ``ddp_dist_backend`` is nccl, and there is no GPU.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init({"microbatches": 4})
    >>> smp.rank(), smp.size(), smp.state.cfg.microbatches
    (0, 1, 4)
    >>> smp.shutdown()
    """
    options = _runtime.runtime_options(dict(os.environ))
    parallel = _settings(options.parameters, config)
    if state.onlooker is not None:
        parallel = state.onlooker.settings(parallel)
    if state.initialized:
        _accept_second_init(parallel)
        return
    _begin(parallel, options)
    if options.cuda_on_cpu:
        cuda_on_cpu.install()


def init_beneath(config: Mapping[str, Any]) -> None:
    """``init`` for a library on top of this one, whose settings are all that count: those of the
    job have its keys."""
    options = _runtime.runtime_options(dict(os.environ))
    _begin(_settings("", config), options)


def is_initialized() -> bool:
    """True if ``init`` has been called; may be asked before.

    >>> is_initialized()
    False
    """
    return state.initialized


def is_tracing() -> bool:
    """True in the run of a step that only watches the model.

    >>> is_tracing()
    False
    """
    return state.is_tracing


def shutdown() -> None:
    """Leaves the job. Called by itself when the process ends; without effect before ``init``.

    Blocks until saves that are under way are done; a process that failed gives them up. Rank 0
    serves the store of the job, so it blocks until the others have left, for at most
    ``SMP_TIMEOUT_SECONDS``; the others do not block. Afterwards ``init`` may be called again.

    Raises:
        SMPCheckpointError: such a save failed; the job was left all the same. At the end of a
            process the exit code is 1 then.

    >>> shutdown()
    """
    if not state.initialized:
        return
    session = state.require_initialized("smp.shutdown")
    if _owner.process != os.getpid():
        return  # connections belong to the parent, which goes on
    atexit.unregister(_shutdown_at_exit)
    try:
        _end_saves()
    finally:
        _end(session)


def _shutdown_at_exit() -> None:
    try:
        shutdown()
    except Exception:
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # the interpreter takes errors of exit handlers for success


def _end_saves() -> None:
    saves = state.background_saves
    if saves is None:
        return
    try:
        if failure_code() == 0:
            saves.wait()
    finally:
        saves.close()


def _end(session: _runtime.Session) -> None:
    state.close_engine()
    if state.stop_save is not None:
        state.stop_save.close()
    if state.model is not None:
        state.model.checks.close()
        if state.model.self_check is not None:
            state.model.self_check.close()
    state.reports.close()
    _leave(session)
    state.clear()
    if _owner.owns_torch and dist.is_initialized():
        dist.destroy_process_group()


def _settings(of_job: str, config: Mapping[str, Any] | None) -> _runtime.ParallelConfig:
    if config is not None and not isinstance(config, Mapping):
        raise SMPValidationError(
            f"smp.init got {type(config).__name__}; expected a dict of settings or nothing"
        )
    where = "smp.init(config)"
    return _runtime.make_parallel_config(
        of_job, "SM_HP_MP_PARAMETERS", settings_text(config or {}, where), where
    )


def settings_text(config: Mapping[str, Any], where: str) -> str:
    """``config`` as JSON, for the tables of settings in C++. Raises SMPConfigError.

    >>> settings_text({"partitions": torch.tensor(2)}, "smp.init(config)")
    '{"partitions": 2}'
    """
    try:
        # NumPy's and torch's scalars have item().
        return json.dumps(dict(config), default=lambda value: value.item())
    except (TypeError, AttributeError, ValueError) as error:
        raise SMPConfigError(
            f"{where}: {config!r} holds something other than numbers, texts and booleans"
        ) from error


def _accept_second_init(parallel: _runtime.ParallelConfig) -> None:
    current = state.require_initialized("smp.init").config
    if parallel.as_json() != current.as_json():
        raise SMPConfigError(
            f"smp.init was called a second time with other settings: first {current.as_json()}, "
            f"now {parallel.as_json()}"
        )
    log.warning("smp.init was called a second time with the same settings; nothing to do")


def _begin(parallel: _runtime.ParallelConfig, options: _runtime.RuntimeOptions) -> None:
    session = _start(parallel, options)
    state.begin(session, parallel, Reports(session))


def _start(parallel: _runtime.ParallelConfig, options: _runtime.RuntimeOptions) -> _runtime.Session:
    global _inits, _owner  # noqa: PLW0603 - of this process
    _owner = _Owner(os.getpid(), owns_torch=not dist.is_initialized())
    _runtime.set_fabric_defaults()  # before threads begin
    backend = backend_for(parallel.ddp_dist_backend)
    session = _runtime.Session(
        config=parallel,
        options=options,
        variables=dict(os.environ),
        number=_inits,
        store=None if _owner.owns_torch else dist.distributed_c10d._get_default_store(),
        world=None if _owner.owns_torch else (dist.get_rank(), dist.get_world_size()),
        find_mpi=teller,
        script_line=script_line,
    )
    _inits += 1
    ranks = session.ranks
    log.configure(ranks.rank)
    if _owner.owns_torch:
        register(backend)
        dist.init_process_group(
            backend,
            store=session.world_store,
            rank=ranks.rank,
            world_size=ranks.size,
            timeout=options.timeout,
        )
    session.open_groups(backend, "gloo", backend_by_host(parallel.ddp_dist_backend), make_group)
    atexit.register(_shutdown_at_exit)
    # Not the session itself: its groups are to go with shutdown.
    own = weakref.ref(session)
    watch(lambda: (left := own()) is None or left.some_rank_ended_well())
    return session


def _leave(session: _runtime.Session) -> None:
    """Rank 0 serves the store, so it goes last; unless it failed, and the job ends anyway."""
    try:
        session.leave(failed=failure_code() != 0, serves=_owner.owns_torch)
    except RuntimeError as error:
        log.warning(str(error))


_OURS = str(Path(__file__).parents[1])
_TORCHS = str(Path(torch.__file__).parent)


def script_line() -> str:
    """File and line of the innermost frame of the main thread that is neither ours nor torch's;
    empty if there is none. May be called from any thread."""
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_OURS, _TORCHS, "<")):
            return f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


Invitation = tuple[str, int, str]
"""Host and port of the job's store, and the job's secret."""


def teller(ranks: _runtime.LaunchRanks) -> Callable[[Invitation | None], Invitation] | None:
    """Function that gives rank 0's invitation to all ranks, which call it together, if this process
    is in a world of MPI that fits ``ranks``; importing it starts MPI."""
    world = _world(ranks)
    return None if world is None else lambda invitation: tuple(world.bcast(invitation, root=0))


def _world(ranks: _runtime.LaunchRanks) -> Any | None:
    starts = "mpi4py.MPI" not in sys.modules
    try:
        from mpi4py import MPI  # noqa: PLC0415 - only a job without an address needs it
    except (ImportError, RuntimeError):
        return None
    world = MPI.COMM_WORLD
    if starts:
        atexit.register(_skip_exit_of_mpi_after_failure)
    fits = world.Get_rank() == ranks.rank and world.Get_size() == ranks.size
    return world if fits else None


def _skip_exit_of_mpi_after_failure() -> None:
    """Ends a process that failed: MPI's exit waits for ranks that wait for this one.

    mpirun then ends the others. ``MPI_Abort`` would too, but it does not wait until mpirun has read
    the traceback.
    """
    code = failure_code()
    if code != 0:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

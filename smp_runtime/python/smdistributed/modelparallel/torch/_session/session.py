# SPDX-License-Identifier: Apache-2.0
"""Start and end of the library in a process: ``init``, ``is_initialized``, ``shutdown``."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from smdistributed import _runtime
from smdistributed._fabric_defaults import set_fabric_defaults
from smdistributed.modelparallel.torch._report.memory_ledger import memory_summary
from smdistributed.modelparallel.torch._report.reported_loss import ReplicaLoss
from smdistributed.modelparallel.torch._report.step_meter import StepMeter
from smdistributed.modelparallel.torch._session import cuda_on_cpu, log
from smdistributed.modelparallel.torch._session.discovery import Identity, discover, locality
from smdistributed.modelparallel.torch._session.groups import Groups, backend_for
from smdistributed.modelparallel.torch._session.launch_environment import (
    LaunchEnvironment,
    read_launch_environment,
)
from smdistributed.modelparallel.torch._session.process_exit import failure_code, watch
from smdistributed.modelparallel.torch._session.rendezvous import open_store
from smdistributed.modelparallel.torch._session.script_line import script_line
from smdistributed.modelparallel.torch._session.settings import Settings
from smdistributed.modelparallel.torch._session.store_barriers import StoreBarriers
from smdistributed.modelparallel.torch._session.stores import PrefixStore, Store
from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state

_inits = 0  # sets the keys of one init apart from those of an earlier one in the same store
_ENDED_WELL = "ended well"  # set by the first rank that leaves without having failed


@dataclass
class Session:
    """What one ``init`` made."""

    config: _runtime.ParallelConfig
    identity: Identity
    mesh: _runtime.Mesh
    groups: Groups
    store: Store
    barriers: StoreBarriers
    timeout: timedelta
    owns_torch: bool
    """Whether ``init`` initialised torch.distributed, and shutdown has to end it."""
    process: int
    """The process that joined; its forked children are no ranks."""
    timeline_file: str
    """Where the ranks of this host write what they did when; empty for nowhere."""
    partitioner: str
    """``auto`` or ``compat``."""
    direct_exchange: bool
    """Whether remote modules may hand results to each other."""
    exchanges_under_way: int | None
    """Of tensor parallelism on a GPU, at most, where a variable says so."""


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
    environment = read_launch_environment(os.environ)
    parallel = _settings(environment, config)
    if state.initialized:
        _accept_second_init(parallel)
        return
    session = _start(parallel, environment)
    if environment.cuda_on_cpu:
        cuda_on_cpu.install()
    cfg = Settings(**json.loads(parallel.as_json()))
    replica_loss = _replica_loss(environment, session, cfg)
    state.begin(session, cfg, _meter(environment, session, cfg, replica_loss), replica_loss)
    for line in (*environment.warnings, *parallel.warnings):
        log.warning(line)


def is_initialized() -> bool:
    """Whether ``init`` has been called; may be asked before.

    >>> is_initialized()
    False
    """
    return state.initialized


def is_tracing() -> bool:
    """Whether this is the run of a step that only watches the model.

    >>> is_tracing()
    False
    """
    return state.is_tracing


def shutdown() -> None:
    """Leaves the job. Called by itself when the process ends; without effect before ``init``.

    Rank 0 serves the store of the job, so it blocks until the others have left, for at most
    ``SMP_TIMEOUT_SECONDS``; the others do not block. Afterwards ``init`` may be called again.

    >>> shutdown()
    """
    if not state.initialized:
        return
    session = state.require_initialized("smp.shutdown")
    if session.process != os.getpid():
        return  # connections belong to the parent, which goes on
    atexit.unregister(shutdown)
    state.close_engine()
    if state.model is not None:
        state.model.checks.close()
    if state.meter is not None:
        state.meter.close()
    _leave(session)
    state.clear()
    if session.owns_torch and dist.is_initialized():
        dist.destroy_process_group()


def _settings(
    environment: LaunchEnvironment, config: Mapping[str, Any] | None
) -> _runtime.ParallelConfig:
    if config is not None and not isinstance(config, Mapping):
        raise SMPValidationError(
            f"smp.init got {type(config).__name__}; expected a dict of settings or nothing"
        )
    try:
        # NumPy's and torch's scalars have item().
        text = json.dumps(dict(config or {}), default=lambda value: value.item())
    except (TypeError, AttributeError, ValueError) as error:
        raise SMPConfigError(
            f"smp.init(config): {config!r} holds something other than numbers, texts and booleans"
        ) from error
    return _runtime.make_parallel_config(
        environment.parameters, "SM_HP_MP_PARAMETERS", text, "smp.init(config)"
    )


def _accept_second_init(parallel: _runtime.ParallelConfig) -> None:
    current = state.require_initialized("smp.init").config
    if parallel.as_json() != current.as_json():
        raise SMPConfigError(
            f"smp.init was called a second time with other settings: first {current.as_json()}, "
            f"now {parallel.as_json()}"
        )
    log.warning("smp.init was called a second time with the same settings; nothing to do")


def _start(parallel: _runtime.ParallelConfig, environment: LaunchEnvironment) -> Session:
    global _inits  # noqa: PLW0603 - counts calls of this process
    timeout = timedelta(seconds=environment.timeout_seconds)
    owns_torch = not dist.is_initialized()
    if owns_torch:
        identity = discover(environment.variables)
        _runtime.validate_world(parallel, identity.size, identity.local_size or identity.size)
        root = open_store(identity, environment, parallel.ddp_port, _inits)
    else:
        local_rank, local_size = locality(environment.variables)
        identity = Identity(
            dist.get_rank(), dist.get_world_size(), local_rank, local_size, "torch.distributed"
        )
        _runtime.validate_world(parallel, identity.size, identity.local_size or identity.size)
        root = dist.distributed_c10d._get_default_store()
    log.configure(identity.rank, identity.size, environment.log_level)
    _inits += 1
    store = PrefixStore(f"smp/{_inits}", root)
    store.set_timeout(timeout)
    identity = _complete_locality(identity, store)
    timeline_file = _timeline_file(environment.trace_folder, identity)
    _compare_settings(parallel, identity, store)
    for line in _runtime.validate_world(parallel, identity.size, identity.local_size or 1):
        log.warning(line)

    backend = backend_for(parallel.ddp_dist_backend)
    if owns_torch:
        dist.init_process_group(
            backend,
            store=PrefixStore(f"c10d/{_inits}", root),
            rank=identity.rank,
            world_size=identity.size,
            timeout=timeout,
        )
    if parallel.pipeline_parallel_degree > 1:
        set_fabric_defaults()
    mesh = _runtime.Mesh(parallel, identity.size)
    alone = identity.size == 1
    waits = None if alone else _runtime.WaitWatch(store, identity.rank, script_line)
    barriers = StoreBarriers(store, identity.rank, timeout, waits)
    groups = Groups(mesh, barriers, identity.rank, parallel.ddp_dist_backend, backend)
    groups.object_group("WORLD")
    if parallel.ddp:
        for kind in ("WORLD", "MP", "DP", "PP", "TP", "RDP"):
            groups.user_group(kind)
    atexit.register(shutdown)
    watch(lambda: store.check([_ENDED_WELL]))
    return Session(
        parallel,
        identity,
        mesh,
        groups,
        store,
        barriers,
        timeout,
        owns_torch,
        os.getpid(),
        timeline_file,
        environment.partitioner,
        environment.direct_exchange,
        environment.exchanges_under_way,
    )


def _replica_loss(
    environment: LaunchEnvironment, session: Session, cfg: Settings
) -> ReplicaLoss | None:
    """Of the ranks that have a loss, if there are several and the first one reports it."""
    with_a_loss = session.groups.ranks("DP")
    if not cfg.ddp or len(with_a_loss) == 1 or 0 not in with_a_loss:
        return None
    if session.identity.rank == 0:
        session.store.set("reports", "yes" if _reports(environment) else "")
    return ReplicaLoss(session.groups) if session.store.get("reports") else None


def _reports(environment: LaunchEnvironment) -> bool:
    return environment.progress or bool(environment.metrics_file)


def _meter(
    environment: LaunchEnvironment,
    session: Session,
    cfg: Settings,
    replica_loss: ReplicaLoss | None,
) -> StepMeter | None:
    """The first rank's, if anybody wants to know."""
    if session.identity.rank != 0 or not _reports(environment):
        return None
    # With prescaled_batch the ranks of a tensor-parallel group get one batch.
    replicas = session.mesh.size(_runtime.Group.RDP if cfg.prescaled_batch else _runtime.Group.DP)
    return StepMeter(
        replicas=replicas,
        pipeline=session.mesh.size(_runtime.Group.PP) > 1,
        metrics_file=environment.metrics_file,
        progress=environment.progress,
        ledger=memory_summary,
        replica_loss=replica_loss,
    )


def _timeline_file(folder: str, identity: Identity) -> str:
    """The file of this host, made anew by its first rank."""
    if not folder:
        return ""
    file = Path(folder) / f"trace-{os.uname().nodename}.json"
    if identity.local_rank == 0:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
    return str(file)


def _complete_locality(identity: Identity, store: Store) -> Identity:
    """Counts ranks by host where the launcher did not say who shares one."""
    if identity.local_rank is not None and identity.local_size is not None:
        return identity
    store.set(f"host/{identity.rank}", os.uname().nodename)
    hosts = [store.get(f"host/{rank}") for rank in range(identity.size)]
    mine = [rank for rank, host in enumerate(hosts) if host == hosts[identity.rank]]
    return replace(identity, local_rank=mine.index(identity.rank), local_size=len(mine))


def _compare_settings(parallel: _runtime.ParallelConfig, identity: Identity, store: Store) -> None:
    """Ranks with different settings would wait for each other for ever."""
    mine = json.loads(parallel.as_json())
    if identity.rank == 0:
        store.set("settings", parallel.as_json())
        return
    theirs = json.loads(store.get("settings"))
    different = [key for key in mine if mine[key] != theirs.get(key)]
    if different:
        raise SMPConfigError(
            f"rank {identity.rank} and rank 0 have different settings: "
            + ", ".join(
                f"{key} is {mine[key]} here and {theirs.get(key)} there" for key in different
            )
        )


def _leave(session: Session) -> None:
    """Rank 0 serves the store, so it goes last; unless it failed, and the job ends anyway."""
    identity, store = session.identity, session.store
    if identity.size == 1:
        return
    if session.barriers.watch is not None:
        session.barriers.watch.leave()
    try:
        if failure_code() == 0:
            store.set(_ENDED_WELL, "")
        if identity.rank != 0:
            store.set(f"left/{identity.rank}", "")
        elif session.owns_torch and failure_code() == 0:
            store.wait([f"left/{rank}" for rank in range(1, identity.size)], session.timeout)
    except RuntimeError as error:
        log.warning(f"the job ended before all ranks had left: {str(error).splitlines()[0]}")

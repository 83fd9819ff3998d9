# SPDX-License-Identifier: Apache-2.0
"""Where the ranks of a job find each other: one key-value store that all of them reach."""

from __future__ import annotations

import atexit
import hashlib
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPConnectionError
from smdistributed.modelparallel.torch._session.discovery import Identity
from smdistributed.modelparallel.torch._session.launch_environment import LaunchEnvironment
from smdistributed.modelparallel.torch._session.process_exit import failure_code
from smdistributed.modelparallel.torch._session.stores import HashStore, Store, TCPStore
from smdistributed.modelparallel.torch.exceptions import SMPConfigError

_LOOPBACK = "127.0.0.1"
# Below the range from which Linux takes ports for outgoing connections.
_DERIVED_PORTS = range(10000, 30000)


@dataclass(frozen=True)
class Rendezvous:
    """Address of the store; ``port`` 0 lets rank 0 pick one and tell the others over MPI."""

    host: str
    port: int
    foreign: bool = False
    """Somebody else serves it: torchrun's agent."""


def plan_rendezvous(
    identity: Identity,
    environment: LaunchEnvironment,
    ddp_port: int | None,
    have_mpi: bool,
    number: int = 0,
) -> Rendezvous:
    """Decides from what the launcher said; pure.

    ``MASTER_ADDR`` and ``MASTER_PORT`` count, ``ddp_port`` before the latter. Without an address:
    what rank 0 tells over MPI (host "" here), else the first of the job's hosts, else loopback when
    all ranks are on this host. Without a port: one that rank 0 picks, told over MPI; else one
    derived from the launcher's job number and the ``number`` of this init: an earlier store's port
    may be open yet.
    """
    variables = environment.variables
    foreign = variables.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() == "true"
    port = _port(variables.get("MASTER_PORT"))
    if foreign and port is not None and "MASTER_ADDR" in variables:
        return Rendezvous(variables["MASTER_ADDR"], port, foreign=True)
    if ddp_port is not None:
        port = ddp_port
    if port is None:
        port = 0 if have_mpi else _derived_port(variables, number)
    if "MASTER_ADDR" in variables:
        return Rendezvous(variables["MASTER_ADDR"], port)
    if identity.local_size == identity.size:
        return Rendezvous(_LOOPBACK, port)
    if have_mpi:
        return Rendezvous("", port)
    if environment.hosts:
        return Rendezvous(environment.hosts[0], port)
    raise SMPConfigError(
        f"{identity.source} started {identity.size} ranks on several hosts, but nothing says where "
        "rank 0 is; export MASTER_ADDR and MASTER_PORT"
    )


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    if text.isdigit() and 0 < int(text) < 65536:
        return int(text)
    raise SMPConfigError(f"MASTER_PORT is {text!r}; expected a port from 1 to 65535")


def _job_number(variables: Mapping[str, str]) -> str:
    """By which the launcher tells jobs apart; empty where it gives none."""
    names = ("OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "SLURM_JOB_ID", "PMI_JOBID")
    return next((variables[name] for name in names if name in variables), "")


def _derived_port(variables: Mapping[str, str], number: int) -> int:
    job = _job_number(variables)
    if not job:
        raise SMPConfigError(
            "the launcher gave ranks but neither MASTER_PORT nor a job number; export MASTER_PORT"
        )
    chosen = int.from_bytes(hashlib.sha256(job.encode()).digest()[:4], "big") + number
    return _DERIVED_PORTS[chosen % len(_DERIVED_PORTS)]


def world_of_mpi(identity: Identity) -> Any | None:
    """MPI's world if this process is in one that fits ``identity``; importing it starts MPI."""
    starts = "mpi4py.MPI" not in sys.modules
    try:
        from mpi4py import MPI  # noqa: PLC0415 - only a job without an address needs it
    except (ImportError, RuntimeError):
        return None
    world = MPI.COMM_WORLD
    if starts:
        atexit.register(_skip_exit_of_mpi_after_failure)
    fits = world.Get_rank() == identity.rank and world.Get_size() == identity.size
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


def open_store(
    identity: Identity, environment: LaunchEnvironment, ddp_port: int | None, number: int
) -> Store:
    """Opens the store; collective. Waits at most the job's timeout for rank 0.

    ``number`` counts the inits of a process, from 0; equal on all ranks.

    Raises SMPConnectionError when it is not reached, or its port is taken.
    """
    if identity.size == 1:
        return HashStore()
    variables = environment.variables
    told = "MASTER_ADDR" in variables and (ddp_port is not None or "MASTER_PORT" in variables)
    mpi = None if told else world_of_mpi(identity)
    place = plan_rendezvous(identity, environment, ddp_port, mpi is not None, number)
    serves = identity.rank == 0 and not place.foreign
    timeout = timedelta(seconds=environment.timeout_seconds)
    host, port = place.host, place.port
    if mpi is None:
        store = _connect(host, port, identity, serves, timeout)
        if not place.foreign:
            _check_job(store, identity, _job_number(variables), f"{host}:{port}")
        return store
    if serves:
        host = host or _own_address()
        store = _connect(host, port, identity, True, timeout)
        mpi.bcast((host, store.port), root=0)
        return store
    host, port = mpi.bcast(None, root=0)
    return _connect(host, port, identity, False, timeout)


def _connect(
    host: str, port: int, identity: Identity, serves: bool, timeout: timedelta
) -> TCPStore:
    try:
        return TCPStore(
            host, port, None, serves, timeout, wait_for_workers=False, multi_tenant=False
        )
    except RuntimeError as error:  # the base of torch.distributed's errors
        deed = "serve" if serves else "reach"
        raise SMPConnectionError(
            f"rank {identity.rank} cannot {deed} the job's store at {host}:{port}: "
            f"{str(error).splitlines()[0]}; check MASTER_ADDR and MASTER_PORT"
        ) from error


def _check_job(store: Store, identity: Identity, job: str, place: str) -> None:
    """Two jobs that were given one port would mix: rank 0 of the second cannot serve its store, and
    its other ranks reach that of the first."""
    if identity.rank == 0:
        store.set("job", job)
        return
    theirs = store.get("job").decode()
    if theirs != job:
        raise SMPConnectionError(
            f"rank {identity.rank} of job {job} reached the store of job {theirs} at {place}: two "
            "jobs use one port; set MASTER_PORT to a free one, or end the other job"
        )


def _own_address() -> str:
    """An address of this host that others can reach; its name if it resolves to loopback only."""
    name = socket.gethostname()
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return name
    addresses = [str(entry[4][0]) for entry in found]
    return next((a for a in addresses if not a.startswith(("127.", "::1", "fe80"))), name)

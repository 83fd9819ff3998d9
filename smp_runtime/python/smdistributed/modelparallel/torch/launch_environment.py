# SPDX-License-Identifier: Apache-2.0
"""What the launcher tells this process: the only place of the library that reads variables."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from smdistributed.modelparallel.torch.exceptions import SMPConfigError

#: How long ranks wait for each other; long, because ranks may save or evaluate meanwhile.
_TIMEOUT_SECONDS = 1800.0


@dataclass(frozen=True)
class LaunchEnvironment:
    """``variables`` is what rank discovery and the rendezvous look at."""

    parameters: str = ""
    """``SM_HP_MP_PARAMETERS``: the job's settings as text."""
    hosts: tuple[str, ...] = ()
    """``SM_HOSTS``, empty outside a job."""
    timeout_seconds: float = _TIMEOUT_SECONDS
    """``SMP_TIMEOUT_SECONDS``."""
    log_level: int = logging.INFO
    """``SM_LOG_LEVEL``."""
    progress: bool = True
    """``SMP_PROGRESS``: the first rank prints how steps go; 0 or off for silence."""
    metrics_file: str = ""
    """``SMP_METRICS``: a file that gets one JSON object a step, from the first rank."""
    trace_folder: str = ""
    """``SMP_TRACE``: a folder for the timeline of all steps, a file a host."""
    partitioner: str = "auto"
    """``SMP_PARTITIONER``: ``auto``, the best of all methods, or ``compat``, the published one."""
    direct_exchange: bool = True
    """``SMP_DIRECT_EXCHANGE``: results of remote modules that only another remote one takes go
    straight there; 0 or off to have all of them come back to the caller."""
    exchanges_under_way: int | None = None
    """``SMP_NCCL_THROTTLE_LIMIT``: how many exchanges of tensor parallelism a GPU may have under
    way, 8 unless it says otherwise; -1 for any number. None: not set."""
    variables: Mapping[str, str] = field(default_factory=dict)


def read_launch_environment(variables: Mapping[str, str]) -> LaunchEnvironment:
    """Raises SMPConfigError for a variable whose text cannot be meant.

    >>> read_launch_environment({"SM_HOSTS": '["algo-1"]', "SMP_TIMEOUT_SECONDS": "60"}).hosts
    ('algo-1',)
    """
    return LaunchEnvironment(
        parameters=variables.get("SM_HP_MP_PARAMETERS", ""),
        hosts=_hosts(variables.get("SM_HOSTS", "")),
        timeout_seconds=_positive("SMP_TIMEOUT_SECONDS", variables, _TIMEOUT_SECONDS),
        log_level=int(_positive("SM_LOG_LEVEL", variables, logging.INFO)),
        progress=_switch("SMP_PROGRESS", variables),
        metrics_file=variables.get("SMP_METRICS", ""),
        trace_folder=variables.get("SMP_TRACE", ""),
        partitioner=_partitioner(variables.get("SMP_PARTITIONER", "auto")),
        direct_exchange=_switch("SMP_DIRECT_EXCHANGE", variables),
        exchanges_under_way=_throttle(variables.get("SMP_NCCL_THROTTLE_LIMIT")),
        variables=dict(variables),
    )


def _switch(name: str, variables: Mapping[str, str]) -> bool:
    return variables.get(name, "on").lower() not in ("0", "off", "false")


def _hosts(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        hosts = json.loads(text)
    except ValueError as error:
        raise SMPConfigError(
            f"SM_HOSTS is {text!r}; expected a JSON list of names: {error}"
        ) from error
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise SMPConfigError(f"SM_HOSTS is {text!r}; expected a JSON list of names")
    return tuple(hosts)


def _partitioner(text: str) -> str:
    if text not in ("auto", "compat"):
        raise SMPConfigError(f'SMP_PARTITIONER is {text!r}; expected "auto" or "compat"')
    return text


def _throttle(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        limit = int(text)
    except ValueError:
        limit = 0
    if limit < 1 and limit != -1:
        raise SMPConfigError(
            f"SMP_NCCL_THROTTLE_LIMIT is {text!r}; expected how many exchanges of tensor "
            "parallelism may be under way, at least 1, or -1 for any number"
        )
    return limit


def _positive(name: str, variables: Mapping[str, str], default: float) -> float:
    text = variables.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise SMPConfigError(f"{name} is {text!r}; expected a number above 0")
    return value

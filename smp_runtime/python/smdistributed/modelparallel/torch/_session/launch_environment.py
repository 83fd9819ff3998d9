# SPDX-License-Identifier: Apache-2.0
"""What the launcher tells this process, as one value, by the table of smdistributed._variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from smdistributed import _runtime, _variables
from smdistributed.modelparallel.torch.exceptions import SMPConfigError

_PREFIX = "SMP_"
_THROTTLE = "SMP_NCCL_THROTTLE_LIMIT"


@dataclass(frozen=True)
class LaunchEnvironment:
    """``variables`` is what rank discovery and the rendezvous look at."""

    parameters: str
    """``SM_HP_MP_PARAMETERS``: the job's settings as text."""
    hosts: tuple[str, ...]
    """``SM_HOSTS``, empty outside a job."""
    timeout_seconds: float
    """``SMP_TIMEOUT_SECONDS``."""
    log_level: int
    """``SM_LOG_LEVEL``."""
    progress: bool
    """``SMP_PROGRESS``."""
    metrics_file: str
    """``SMP_METRICS``."""
    trace_folder: str
    """``SMP_TRACE``."""
    partitioner: str
    """``SMP_PARTITIONER``: ``auto`` or ``compat``."""
    direct_exchange: bool
    """``SMP_DIRECT_EXCHANGE``."""
    cuda_on_cpu: bool
    """``SMP_CPU``."""
    exchanges_under_way: int | None
    """``SMP_NCCL_THROTTLE_LIMIT``; -1 for any number, None where it is not set."""
    variables: Mapping[str, str]
    warnings: tuple[str, ...]
    """Sentences about variables with our prefix that nothing knows."""


def read_launch_environment(variables: Mapping[str, str]) -> LaunchEnvironment:
    """Raises SMPConfigError for a variable that holds what it may not.

    >>> read_launch_environment({"SM_HOSTS": '["algo-1"]', "SMP_TIMEOUT_SECONDS": "60"}).hosts
    ('algo-1',)
    >>> read_launch_environment({"SMP_PROGRES": "off"}).warnings
    ('SMP_PROGRES is not known; did you mean SMP_PROGRESS?',)
    """
    try:
        values = {v.name: _variables.read(v.name, variables) for v in _variables.VARIABLES}
    except ValueError as error:
        raise SMPConfigError(f"variable {error}; correct or unset it") from None
    known = [name for name in (*values, "SMP_EXTRA_CA_FILE") if name.startswith(_PREFIX)]
    given = sorted(variables.keys() - set(_variables.OTHERS))
    return LaunchEnvironment(
        parameters=values["SM_HP_MP_PARAMETERS"],
        hosts=values["SM_HOSTS"],
        timeout_seconds=values["SMP_TIMEOUT_SECONDS"],
        log_level=values["SM_LOG_LEVEL"],
        progress=values["SMP_PROGRESS"],
        metrics_file=values["SMP_METRICS"],
        trace_folder=values["SMP_TRACE"],
        partitioner=values["SMP_PARTITIONER"],
        direct_exchange=values["SMP_DIRECT_EXCHANGE"],
        cuda_on_cpu=values["SMP_CPU"],
        exchanges_under_way=values[_THROTTLE] if variables.get(_THROTTLE) else None,
        variables=dict(variables),
        warnings=tuple(_runtime.describe_unknown_variables(given, _PREFIX, known)),
    )

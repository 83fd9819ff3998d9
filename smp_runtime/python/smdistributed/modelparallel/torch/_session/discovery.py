# SPDX-License-Identifier: Apache-2.0
"""Who this process is among its peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from smdistributed.modelparallel.torch.exceptions import SMPConfigError


@dataclass(frozen=True)
class Identity:
    """``local_rank`` and ``local_size`` are None where the launcher does not tell them."""

    rank: int
    size: int
    local_rank: int | None
    local_size: int | None
    source: str
    """Who said so, for messages."""


@dataclass(frozen=True)
class _Launcher:
    source: str
    rank: str
    size: str
    local_rank: str
    local_size: str


# In the order in which they are asked.
_OPEN_MPI = _Launcher(
    "Open MPI",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
)
_PMI = _Launcher("PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
# Variables of a step: a batch script has those of the allocation, but is one process.
_SLURM = _Launcher(
    "Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"
)
_TORCHRUN = _Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_LAUNCHERS = (_OPEN_MPI, _PMI, _SLURM, _TORCHRUN)


def discover(variables: Mapping[str, str]) -> Identity:
    """Asks the variables of Open MPI, PMI, Slurm and torchrun, in this order; else one process.

    A process of torchrun believes torchrun, whatever it inherits from what started torchrun.
    Raises SMPConfigError when a launcher's numbers do not fit together.

    >>> discover({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    Identity(rank=3, size=4, local_rank=1, local_size=2, source='torchrun')
    >>> discover({}).size
    1
    """
    launchers = (_TORCHRUN, *_LAUNCHERS) if "TORCHELASTIC_RUN_ID" in variables else _LAUNCHERS
    for launcher in launchers:
        if launcher.rank in variables and launcher.size in variables:
            return _identity(launcher, variables)
    return Identity(0, 1, 0, 1, "no launcher")


def locality(variables: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Local rank and size alone, for a process whose rank torch.distributed knows."""
    identity = discover(variables)
    if identity.source == "no launcher":
        return None, None
    return identity.local_rank, identity.local_size


def _identity(launcher: _Launcher, variables: Mapping[str, str]) -> Identity:
    def number(name: str) -> int:
        try:
            return int(variables[name])
        except ValueError:
            raise SMPConfigError(
                f"{name} of {launcher.source} is {variables[name]!r}; expected a number"
            ) from None

    def optional(name: str) -> int | None:
        return number(name) if name in variables else None

    identity = Identity(
        number(launcher.rank),
        number(launcher.size),
        optional(launcher.local_rank),
        optional(launcher.local_size),
        launcher.source,
    )
    if not 0 <= identity.rank < identity.size:
        raise SMPConfigError(
            f"{launcher.source} says {launcher.rank}={identity.rank} and "
            f"{launcher.size}={identity.size}; expected a rank below the size"
        )
    return identity

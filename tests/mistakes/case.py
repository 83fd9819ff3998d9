# SPDX-License-Identifier: Apache-2.0
"""A mistake: what a script or job gets wrong, where it is tried, and what has to be said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

BEGIN = "the mistake follows"  # a job prints it where its time begins


@dataclass(frozen=True)
class Setting:
    """A way of training in which mistakes are tried."""

    name: str
    parameters: dict[str, Any] | None = None  # mp_parameters; None: a script without smp
    processes: int = 1


ONE = Setting("one process", {"microbatches": 2})
PP = Setting("pipeline", {"pipeline_parallel_degree": 2, "microbatches": 2}, 2)
TP = Setting("tensor", {"tensor_parallel_degree": 2, "ddp": True, "microbatches": 2}, 2)
SDP = Setting(
    "sharded",
    {
        "sharded_data_parallel_degree": 2,
        "sdp_param_persistence_threshold": 0,
        "ddp": True,
        "microbatches": 2,
    },
    2,
)
DDP = Setting("replicas", {"ddp": True, "microbatches": 2}, 2)
BF16 = Setting("bf16", {"bf16": True, "microbatches": 2})
FP16 = Setting("fp16", {"fp16": True, "microbatches": 2})
SMDDP = Setting("smddp", None, 2)
PLAIN = Setting("one process", None, 1)
EVERYWHERE = (ONE, PP, TP, SDP, DDP)


@dataclass(frozen=True)
class Outcome:
    """Outcome that has to follow. `says` is quoted; "…" in it stands for what differs."""

    kind: str  # error, warning, works
    says: str = ""
    rank: int | None = None  # for an error: the only rank whose failure may be reported
    code: int | None = None  # for an error: the exit code with SM_LAUNCH_EXIT=propagate


def error(says: str, rank: int | None = None, code: int | None = None) -> Outcome:
    """The job ends, within 15 s, and `failure` says it."""
    return Outcome("error", says, rank, code)


def warning(says: str) -> Outcome:
    """The log says it within two steps, and the job goes on."""
    return Outcome("warning", says)


WORKS = Outcome("works")


@dataclass(frozen=True)
class Mistake:
    name: str
    title: str  # for the table
    tried: tuple[tuple[Setting, Outcome], ...]
    script: Callable[[], None]
    options: dict[str, Any] = field(default_factory=dict)  # for train --make-tree
    environment: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)  # added to mp_parameters
    before_init: bool = False  # the script runs before smp.init()


MISTAKES: dict[str, Mistake] = {}


def mistake(
    title: str,
    *tried: tuple[tuple[Setting, ...] | Setting, Outcome],
    options: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    parameters: dict[str, Any] | None = None,
    before_init: bool = False,
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Marks a function as the script of a mistake, with what follows in each setting."""

    def register(script: Callable[[], None]) -> Callable[[], None]:
        pairs = [
            (setting, outcome)
            for settings, outcome in tried
            for setting in (settings if isinstance(settings, tuple) else (settings,))
        ]
        name = script.__name__
        assert name not in MISTAKES, name
        MISTAKES[name] = Mistake(
            name,
            title,
            tuple(pairs),
            script,
            options or {},
            environment or {},
            parameters or {},
            before_init,
        )
        return script

    return register

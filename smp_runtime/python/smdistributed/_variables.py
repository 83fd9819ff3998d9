# SPDX-License-Identifier: Apache-2.0
"""The variables of the environment that the library reads: one table, without torch.

The documentation's table is docs/reference/environment.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_MOST_SECONDS = 1e9


@dataclass(frozen=True)
class Kind:
    """What a variable may hold. ``parse`` raises ValueError for anything else."""

    expected: str
    parse: Callable[[str], Any]


def _switch(text: str) -> bool:
    word = text.lower()
    if word in ("1", "on", "true", "yes"):
        return True
    if word in ("0", "off", "false", "no"):
        return False
    raise ValueError(text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= _MOST_SECONDS:
        raise ValueError(text)
    return seconds


def _level(text: str) -> int:
    level = logging.getLevelName(text.upper())
    number = level if isinstance(level, int) else int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _limit(text: str) -> int:
    limit = int(text)
    if limit < 1 and limit != -1:
        raise ValueError(text)
    return limit


def _names(text: str) -> tuple[str, ...]:
    names = json.loads(text or "[]")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(text)
    return tuple(names)


def _choice(*words: str) -> Kind:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return Kind(" or ".join(words), parse)


SWITCH = Kind("1, on, true or yes, or 0, off, false or no", _switch)
SECONDS = Kind(f"a number of seconds above 0, at most {_MOST_SECONDS:.0f}", _seconds)
LEVEL = Kind("a level of Python's logging, such as 10 or DEBUG", _level)
LIMIT = Kind("a number of at least 1, or -1 for any number", _limit)
NAMES = Kind("a JSON list of names", _names)
TEXT = Kind("a text", str)


@dataclass(frozen=True)
class Variable:
    """A row of the table; an empty ``default`` stands for nothing."""

    name: str
    default: str
    kind: Kind
    meaning: str


VARIABLES = (
    Variable("SM_HP_MP_PARAMETERS", "", TEXT,
             "settings of the job, which have precedence over those of smp.init"),
    Variable("SM_HOSTS", "", NAMES,
             "the job's hosts; the first is where rank 0 is looked for if nothing else says it"),
    Variable("SM_LOG_LEVEL", "20", LEVEL, "threshold of the log"),
    Variable("SMP_TIMEOUT_SECONDS", "1800", SECONDS,
             "how long ranks wait for each other; long, because ranks may save or evaluate"),
    Variable("SMP_PROGRESS", "on", SWITCH, "the first rank prints a line about steps on stderr"),
    Variable("SMP_METRICS", "", TEXT, "file for one JSON object per step, from the first rank"),
    Variable("SMP_TRACE", "", TEXT, "folder for the timeline of all steps, one file per host"),
    Variable("SMP_PARTITIONER", "auto", _choice("auto", "compat"),
             "auto: the best of all methods; compat: the published algorithm"),
    Variable("SMP_DIRECT_EXCHANGE", "on", SWITCH,
             "results of a remote module that only another remote one uses go straight there"),
    Variable("SMP_NCCL_THROTTLE_LIMIT", "8", LIMIT,
             "how many collectives of tensor parallelism may be in flight on a GPU"),
    Variable("SMP_CPU", "off", SWITCH,
             "without a GPU, what scripts do on CUDA devices is done on the CPU, for debugging"),
    Variable("SMP_DEEPSPEED_COMPAT", "off", SWITCH,
             "names of DeepSpeed that a published script patches can be imported without it"),
)  # fmt: skip

#: Variables with the library's prefix that others read: the launcher, scripts of the repository,
#: tests. They are no misspellings.
OTHERS = (
    "SMP_EXTRA_CA_FILE", "SMP_LAUNCH_FOLDER",
    "SMP_BENCH_HOSTS", "SMP_ENGINE_ROOT", "SMP_ENGINE_RUN", "SMP_IMAGE", "SMP_OS_RELEASE",
    "SMP_SHM_SIZE", "SMP_TREE",
    "SMP_FUZZ_ROUNDS", "SMP_LONG_TESTS", "SMP_MARK", "SMP_MISTAKE_LOAD",
    "SMP_MISTAKE_ROUNDS", "SMP_PIP_EXIT", "SMP_RECORDER", "SMP_RECORDS", "SMP_SCRIPT",
    "SMP_TEST_FOLDER", "SMP_TEST_IMAGE", "SMP_TEST_MARK", "SMP_TRAIN",
    "SMP_UPDATE_GOLDEN",
)  # fmt: skip


def find(name: str) -> Variable:
    return next(variable for variable in VARIABLES if variable.name == name)


def read(name: str, variables: Mapping[str, str]) -> Any:
    """The value of a variable of the table, its default where it is unset or empty. Raises
    ValueError that names the variable, what it holds and what may stand there.

    >>> read("SMP_PROGRESS", {"SMP_PROGRESS": "no"}), read("SMP_PROGRESS", {})
    (False, True)
    >>> read("SMP_PROGRESS", {"SMP_PROGRESS": "of"})
    Traceback (most recent call last):
    ValueError: SMP_PROGRESS is 'of'; expected 1, on, true or yes, or 0, off, false or no
    """
    variable = find(name)
    text = variables.get(name) or variable.default
    try:
        return variable.kind.parse(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; expected {variable.kind.expected}") from None

# SPDX-License-Identifier: Apache-2.0
"""Keys of ``torch.sagemaker.init`` and of the estimator's parameters: one table, and its checks."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPUnsupportedError

ESTIMATOR = "SM_HP_MP_PARAMETERS"
V1 = "this is SMP v1: import smdistributed.modelparallel.torch"


@dataclass(frozen=True)
class Key:
    """A key: its default, whose type is the key's, and the least number that it takes."""

    default: int | bool
    meaning: str
    least: int = 0


KEYS = {
    "hybrid_shard_degree": Key(0, "ranks over which one copy of the model is sharded; 0: what the "
                               "script's strategy of FSDP says, 1: none"),
    "sm_activation_offloading": Key(True, "the script is to wrap the model in offload_wrapper"),
    "activation_loading_horizon": Key(2, "offloaded inputs of layers on the GPU at once", 1),
    "fsdp_cache_flush_warnings": Key(True, "warn when the allocator of the GPU flushes its cache"),
    "allow_empty_shards": Key(False, "ranks may have no piece of a tensor"),
    "tensor_parallel_degree": Key(1, "ranks over which layers are split", 1),
    "context_parallel_degree": Key(1, "ranks over which a sequence is split", 1),
    "expert_parallel_degree": Key(1, "ranks over which experts are spread", 1),
    "random_seed": Key(12345, "added to the rank where ranks are to draw differently"),
}  # fmt: skip
_V1_KEYS = {
    name
    for name, value in vars(_runtime.ParallelConfig).items()
    if isinstance(value, property) and name not in KEYS
}
_ABSENT = {
    "context_parallel_degree": "context parallelism",
    "expert_parallel_degree": "expert parallelism",
}


def estimator_settings() -> dict[str, int | bool]:
    """Settings of the job, which the launcher hands over; checked."""
    text = os.environ.get(ESTIMATOR)
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SMPConfigError(f"{ESTIMATOR} is no JSON: {error}") from error
    return checked(found, ESTIMATOR)


def given_settings(config: Mapping[str, Any] | str | os.PathLike[str] | None) -> dict[str, Any]:
    """Settings that a script gives to ``init``: a dict, or the path of a JSON file; checked."""
    where = "torch.sagemaker.init(config)"
    if config is None:
        return {}
    if isinstance(config, str | os.PathLike):
        where = str(config)
        try:
            config = json.loads(Path(config).read_text())
        except OSError as error:
            raise SMPConfigError(f"cannot read the settings {where}: {error}") from error
        except ValueError as error:
            raise SMPConfigError(f"{where} is no JSON: {error}") from error
    return checked(config, where)


def checked(found: Any, where: str) -> dict[str, int | bool]:
    """
    >>> checked({"hybrid_shard_degree": 2}, "config")
    {'hybrid_shard_degree': 2}
    >>> checked({"hybrid_shard_degre": 2}, "config")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    SMPConfigError: config: there is no key hybrid_shard_degre; nearest: hybrid_shard_degree
    """
    if not isinstance(found, Mapping):
        raise SMPConfigError(
            f"{where} is of {type(found).__name__}; expected a dict of settings, or the path of a "
            "JSON file with one"
        )
    return {name: check_value(name, value, where) for name, value in found.items()}


def check_value(name: str, value: Any, where: str) -> int | bool:
    """``value``, which is one that the key may have. Raises SMPConfigError."""
    if name not in KEYS:
        raise SMPConfigError(f"{where}: {_unknown(name)}")
    key = KEYS[name]
    if isinstance(key.default, bool):
        if value not in (True, False):
            raise SMPConfigError(f"{where}: {name} is {value!r}; expected true or false")
        return bool(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise SMPConfigError(f"{where}: {name} is {value!r}; expected a whole number")
    if value < key.least:
        raise SMPConfigError(f"{where}: {name} is {value}; expected at least {key.least}")
    return value


def _unknown(name: str) -> str:
    if name in _V1_KEYS:
        return f"the key {name}: {V1}"
    near = difflib.get_close_matches(str(name), KEYS, n=1, cutoff=0)
    return f"there is no key {name}; nearest: {near[0]}"


def check_together(settings: Mapping[str, Any], world_size: int) -> None:
    """Raises SMPConfigError for degrees that do not fit each other or the number of ranks, and
    SMPUnsupportedError for those of what is not there."""
    tensor, shard = settings["tensor_parallel_degree"], settings["hybrid_shard_degree"]
    context, expert = settings["context_parallel_degree"], settings["expert_parallel_degree"]
    if tensor > 1 and expert > 1:
        raise SMPConfigError(
            f"expert_parallel_degree is {expert} and tensor_parallel_degree is {tensor}; at most "
            "one of them may be above 1"
        )
    if shard and context > shard:
        raise SMPConfigError(
            f"context_parallel_degree is {context}; expected at most hybrid_shard_degree, {shard}"
        )
    for name, what in _ABSENT.items():
        if settings[name] > 1:
            raise SMPUnsupportedError(
                f"{name} is {settings[name]}: {what} is not offered; expected 1"
            )
    for name, degree in (
        ("tensor_parallel_degree", tensor),
        ("hybrid_shard_degree", shard or 1),
        ("tensor_parallel_degree x hybrid_shard_degree", tensor * (shard or 1)),
    ):
        if world_size % degree:
            raise SMPConfigError(
                f"{name} is {degree}, which does not divide the number of ranks, {world_size}"
            )

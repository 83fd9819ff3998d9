# SPDX-License-Identifier: Apache-2.0
"""SMP_CPU=1 for scripts of SMP v2, which ask for GPUs before ``init`` and at each step."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from smdistributed import _runtime
from smdistributed.modelparallel.torch._ranks import cuda_on_cpu
from smdistributed.sagemaker.logger import get_logger

_ATTENTION = "attn_implementation"


def is_asked_for() -> bool:
    """True with SMP_CPU=1 on a machine without a GPU."""
    asked = _runtime.runtime_options(dict(os.environ)).cuda_on_cpu
    return asked and not torch.cuda.is_available()


def install() -> None:
    """What the package does with SMP_CPU=1, and one device to count, ranges and a profiler that do
    nothing, and groups of Gloo in place of NCCL's."""
    cuda_on_cpu.install()
    for name in ("init_process_group", "new_group"):
        setattr(dist, name, _by_gloo(getattr(dist, name)))
    torch.cuda.device_count = _one_device
    for name in ("range_push", "range_pop", "mark"):
        setattr(torch.cuda.nvtx, name, _nothing(name))
    torch.cuda.cudart = _Profiler


def replace_flash_attention() -> None:
    """``attn_implementation="flash_attention_2"`` is PyTorch's attention from now on, where a
    script's Transformers makes models."""
    factory: Any = sys.modules.get("transformers.models.auto.auto_factory")
    if factory is None:
        return
    base = factory._BaseAutoModelClass
    for models in (base, *base.__subclasses__()):  # each class has copies of the two
        for name in {"from_config", "from_pretrained"} & vars(models).keys():
            plain = vars(models)[name].__func__
            if not hasattr(plain, "_replaces_flash_attention"):
                setattr(models, name, classmethod(_without_flash(plain)))


def _without_flash(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get(_ATTENTION) == "flash_attention_2":
            kwargs[_ATTENTION] = "sdpa"
            get_logger().warning("SMP_CPU=1: PyTorch's attention in place of flash_attention_2")
        return plain(*args, **kwargs)

    call._replaces_flash_attention = True  # type: ignore[attr-defined]
    return call


def _by_gloo(plain: Callable[..., Any]) -> Callable[..., Any]:
    """``plain``, which makes groups, with Gloo where the script names NCCL."""
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        if "nccl" in str(given.arguments.get("backend")).lower():  # also as "cpu:gloo,cuda:nccl"
            given.arguments["backend"] = "gloo"
            get_logger().warning("SMP_CPU=1: Gloo in place of NCCL")
        return plain(*given.args, **given.kwargs)

    return call


def _one_device() -> int:
    return 1


def _nothing(name: str) -> Callable[..., None]:
    """A function for each name: torch.compile asks for that."""

    def call(*_args: Any, **_kwargs: Any) -> None:
        pass

    call.__name__ = name
    return call


class _Profiler:
    """``torch.cuda.cudart()``, as far as scripts use it."""

    def cudaProfilerStart(self) -> int:  # noqa: N802 - CUDA's name
        return 0

    def cudaProfilerStop(self) -> int:  # noqa: N802
        return 0

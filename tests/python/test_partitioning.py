# SPDX-License-Identifier: Apache-2.0
"""Input of the partitioner, from a model and its settings."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest
import torch
from smdistributed.modelparallel.torch._partition import partitioning
from smdistributed.modelparallel.torch._ranks import ranks
from torch import nn


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_parameters_count_once_with_those_who_hold_them(
    smp: ModuleType, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, size: int
) -> None:
    told: dict[str, object] = {}

    def partition_job(tree: object, config: object, **others: object) -> SimpleNamespace:
        told.update(others, config=config)
        return SimpleNamespace(summary="chosen", warning="")

    monkeypatch.setattr(partitioning._runtime, "partition_job", partition_job)
    monkeypatch.setattr(ranks, "rdp_size", lambda: 3)
    layer = nn.Linear(4, 4, dtype=dtype)
    module = nn.Sequential(layer, layer)

    assert partitioning._assign_automatically(module, None, 1000).summary == "chosen"
    assert told == {
        "config": smp.state.cfg,
        "partitioner": "auto",
        "elements": 20,
        "parameter_bytes": 20 * size,
        "replicas": 3,
        "on_gpus": torch.cuda.is_available(),
        "device_bytes": partitioning._device_bytes(),
        "recompute_bytes": 1000,
    }

# SPDX-License-Identifier: Apache-2.0
"""What the partitioner is told of a model and its settings."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from smdistributed.modelparallel.torch._partition import partitioning
from smdistributed.modelparallel.torch._session import ranks
from torch import nn


@pytest.mark.parametrize(
    ("dtype", "computing", "alone", "sharded"),
    [
        # Bytes of parameter and gradient, and of Adam's state, which 3 ranks share, over those of
        # the parameter.
        (torch.float32, {}, (4 + 4 + 8) // 4, (4 + 4 + 4) // 4),
        (torch.float32, {"bf16": True}, (2 + 2 + 12) // 4, (2 + 2 + 4) // 4),
        (torch.bfloat16, {}, (2 + 2 + 12) // 2, (2 + 2 + 4) // 2),
    ],
)
def test_optimizer_state_counts_as_far_as_it_is_a_rank_s_own(
    smp: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    computing: dict[str, bool],
    alone: int,
    sharded: int,
) -> None:
    told: list[int] = []

    def assign(*_args: object, state_factor: int, **_others: object) -> None:
        told.append(state_factor)
        raise InterruptedError

    monkeypatch.setattr(partitioning._runtime, "assign_auto", assign)
    monkeypatch.setattr(ranks, "rdp_size", lambda: 3)
    for key, value in computing.items():
        setattr(smp.state.cfg, key, value)
    module = nn.Linear(4, 4, dtype=dtype)

    for shares in (False, True):
        smp.state.cfg.shard_optimizer_state = shares
        with pytest.raises(InterruptedError):
            partitioning._assign_automatically(module, None, 0)

    assert told == [alone, sharded]

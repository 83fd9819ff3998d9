# SPDX-License-Identifier: Apache-2.0
"""The example of sharded data parallelism, as a user starts it."""

import json
import re

import pytest
from launching import run_mpi

pytest.importorskip("transformers", reason="the example's model is of transformers")


def test_vision_transformer_learns_digits_on_shards():
    settings = {"ddp": True, "sharded_data_parallel_degree": 2,
                "sdp_param_persistence_threshold": 64}  # fmt: skip

    outcome = run_mpi(4, "../../../examples/vit_sharded/train.py", "--steps", "30",
                      SM_HP_MP_PARAMETERS=json.dumps(settings))  # fmt: skip

    assert outcome.code == 0, outcome.output
    losses = [float(loss) for loss in re.findall(r"step time is \S+ loss (\S+)", outcome.output)]
    assert len(losses) == 30
    assert sum(losses[-5:]) / 5 < losses[0] - 0.4, losses
    persistent, shards = (
        int(re.search(rf"'{name}': (\d+)", outcome.output)[1])
        for name in ("persistent", "parameters")
    )
    assert persistent < 0.05 * 2 * shards, "at least 95 % of the elements are sharded"

# SPDX-License-Identifier: Apache-2.0
"""The example of sharded data parallelism, as a user starts it."""

import json
import re

import pytest
from launching import agrees_with_plain_torch, run_mpi

pytest.importorskip("transformers", reason="the example's model is of transformers")


def train(steps: int, **variables: str) -> str:
    settings = {"ddp": True, "sharded_data_parallel_degree": 2,
                "sdp_param_persistence_threshold": 64}  # fmt: skip

    outcome = run_mpi(4, "../../../examples/vit_sharded/train.py", "--steps", str(steps),
                      SM_HP_MP_PARAMETERS=json.dumps(settings), SMP_SELF_CHECK="2",
                      **variables)  # fmt: skip

    assert outcome.code == 0, outcome.output
    assert agrees_with_plain_torch(outcome), outcome.output
    return outcome.output


def losses_in(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"step time is \S+ loss (\S+)", output)]


@pytest.mark.long
def test_vision_transformer_learns_digits_on_shards():
    output = train(30, SMP_DEEPSPEED_COMPAT="1")  # as in the image

    losses = losses_in(output)
    assert len(losses) == 30
    assert sum(losses[-5:]) / 5 < losses[0] - 0.4, losses
    persistent, shards = (
        int(re.search(rf"'{name}': (\d+)", output)[1]) for name in ("persistent", "parameters")
    )
    assert persistent < 0.05 * 2 * shards, "at least 95 % of the elements are sharded"
    assert "no deepspeed" not in output


@pytest.mark.long
def test_vision_transformer_goes_without_the_names_of_deepspeed():
    output = train(2)

    assert len(losses_in(output)) == 2
    assert "no deepspeed to patch: going without; SMP_DEEPSPEED_COMPAT=1 offers" in output

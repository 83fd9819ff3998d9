# SPDX-License-Identifier: Apache-2.0
"""The example of tensor parallelism, as a user starts it."""

import json
import re

import pytest
import torch
from launching import agrees_with_plain_torch, run_mpi, together

transformers = pytest.importorskip("transformers", reason="the example's model is of transformers")
SCRIPT = "../../../examples/gpt2_tensor_parallel/train.py"
SMALL = ["--steps", "30", "--length", "24", "--width", "32", "--batch", "8", "--double"]


def train(processes, *args, **settings):
    outcome = run_mpi(processes, SCRIPT, *SMALL, *args, SMP_SELF_CHECK="2",
                      SM_HP_MP_PARAMETERS=json.dumps(settings))  # fmt: skip
    assert outcome.code == 0, outcome.output
    assert agrees_with_plain_torch(outcome), outcome.output
    # A line of the log may come between a printed line and its end.
    line = r"(?m)step \d+: mean loss (\S+?)(?:\d{4}-\d\d-\d\d .*)?$"
    losses = [float(loss) for loss in re.findall(line, outcome.output)]
    held = int(re.search(r"this rank holds (\d+) elements", outcome.output)[1])
    return losses, held


def test_gpt2_learns_the_manual_as_one_process_does(tmp_path):
    (losses, whole), (split, held) = together(
        lambda: train(1), lambda: train(2, "--save", str(tmp_path), tensor_parallel_degree=2)
    )

    assert len(losses) == len(split) == 30
    # Some norms are computed in 32 bits.
    torch.testing.assert_close(torch.tensor(split), torch.tensor(losses), rtol=0, atol=1e-4)
    assert sum(losses[-5:]) / 5 < losses[0] - 1.5, losses
    assert held < 0.7 * whole, "layers are split, embeddings are not"
    entries = torch.load(tmp_path / "pytorch_model.bin", weights_only=True)
    entries.pop("lm_head.weight")  # tied
    assert sum(value.numel() for value in entries.values()) == whole

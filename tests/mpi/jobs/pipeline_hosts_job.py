# SPDX-License-Identifier: Apache-2.0
"""One of four ranks on two hosts: `pipeline` trains over a pipeline of all four, `replicas` over
two pipelines whose gradients meet by smddp. What comes out is held against one process."""

from __future__ import annotations

import sys

import reducer_jobs
import smdistributed.modelparallel.torch as smp
import torch
from models import make_batches, train_alone
from pipeline_jobs import train

STEPS, BATCH, MICROBATCHES = 3, 16, 4


def pipeline() -> None:
    smp.init(
        {"partitions": 4, "ddp": True, "microbatches": MICROBATCHES, "deterministic_server": True}
    )
    losses, parameters, local = train(STEPS, BATCH, torch.float32)
    expected_losses, expected = train_alone(make_batches(STEPS, BATCH), MICROBATCHES, torch.float32)
    assert local, "every rank holds a part"
    assert losses == expected_losses, (losses, expected_losses)
    assert parameters.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(parameters[name], value), name


def replicas() -> None:
    smp.init(
        {"partitions": 2, "ddp": True, "microbatches": 2, "ddp_dist_backend": "smddp",
         "auto_partition": False, "default_partition": 0, "placement_strategy": "spread"}
    )  # fmt: skip
    seen, _ = reducer_jobs.gradients(25)
    for own, expected in zip(seen, reducer_jobs.alone(2, 2), strict=True):
        for name, grad in own.items():
            wanted = expected[name]
            assert (grad is None) == (wanted is None), name
            assert wanted is None or torch.equal(grad, wanted), name


{"pipeline": pipeline, "replicas": replicas}[sys.argv[1]]()
print(f"rank {smp.rank()}: the bits of one process", flush=True)

# SPDX-License-Identifier: Apache-2.0
"""Two ranks that train a little; whoever starts them asks for metrics and a timeline."""

import smdistributed.modelparallel.torch as smp
import torch
from models import make_batches, make_model
from pipeline_jobs import train
from torch.utils.flop_counter import FlopCounterMode

STEPS, BATCH = 3, 16


def forward_flops() -> int:
    """FLOPs of the whole model and batch, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        make_model()(make_batches(1, BATCH)[0][0])
    return counter.get_total_flops()


if __name__ == "__main__":
    smp.init({"partitions": 2, "ddp": True, "microbatches": 4})
    train(STEPS, BATCH, torch.float32)
    if smp.rank() == 0:
        print(f"forward of {forward_flops()} operations")

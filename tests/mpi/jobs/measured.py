# SPDX-License-Identifier: Apache-2.0
"""Two ranks that train a little; whoever starts them asks for metrics and a timeline."""

import smdistributed.modelparallel.torch as smp
import torch
from pipeline_jobs import train

if __name__ == "__main__":
    smp.init({"partitions": 2, "ddp": True, "microbatches": 4})
    train(3, 16, torch.float32)

# SPDX-License-Identifier: Apache-2.0
"""Replicas whose losses differ. Each rank prints how many exchanges of losses it started.

usage: replica_losses.py PARTITIONS [silent]; silent: rank 0 is to report nothing, the others would
"""

import os
import sys

import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch._metrics.reports import Reports


@smp.step
def train_step(model, batch):
    loss = model(batch).mean()
    model.backward(loss)
    return batch, loss


@smp.step
def evaluate(model, batch):
    return model(batch).mean()


def main() -> None:
    exchanges = 0
    averaged = Reports.averaged

    def counted(self: Reports, loss: torch.Tensor | None, device: torch.device) -> None:
        nonlocal exchanges
        exchanges += self.want_loss
        averaged(self, loss, device)

    Reports.averaged = counted  # type: ignore[method-assign]
    if "silent" in sys.argv and os.environ["OMPI_COMM_WORLD_RANK"] == "0":
        os.environ["SMP_PROGRESS"] = "off"
        os.environ.pop("SMP_METRICS", None)
    partitions = int(sys.argv[1])
    by_hand = {"auto_partition": False, "default_partition": 0}
    smp.init({"partitions": partitions, "ddp": True, "microbatches": 2, **by_hand})
    first, last = torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        first.weight.fill_(2)
        last.weight.fill_(1)
    smp.set_partition(last, partitions - 1)
    model = smp.DistributedModel(torch.nn.Sequential(first, last), backward_passes_per_step=2)
    own = torch.full((4, 1), float(4 ** smp.dp_rank()))  # losses 2 and 8, which nobody changes
    for _ in range(4):
        train_step(model, own)
    if smp.dp_rank() == 0:  # an evaluation of one rank alone
        with torch.no_grad():
            evaluate(model, own)
    with model.join():  # the first replica has more batches
        for _ in range(4 - 2 * smp.dp_rank()):
            train_step(model, own)
    print(f"rank {smp.rank()} exchanged {exchanges}", flush=True)


if __name__ == "__main__":
    main()

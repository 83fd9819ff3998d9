# SPDX-License-Identifier: Apache-2.0
"""Steps without end over WAY, smddp or pipeline, until a signal comes; HANDLER: own or default.

Says "stepping" once it does, then what a script would do last.
"""

import signal
import sys
from collections.abc import Callable
from types import FrameType

import torch
import torch.distributed as dist

WAY, HANDLER = sys.argv[1:]


def ended(number: int, frame: FrameType | None) -> None:
    sys.exit(7)


# A shell that runs the tests in the background ignores interrupts, and so would this process.
signal.signal(signal.SIGINT, signal.default_int_handler)
if HANDLER == "own":
    signal.signal(signal.SIGTERM, ended)


def over_smddp() -> Callable[[], object]:
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401, PLC0415

    dist.init_process_group("smddp")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    return lambda: model(torch.ones(4, 8)).sum().backward()


def over_a_pipeline() -> Callable[[], object]:
    import smdistributed.modelparallel.torch as smp  # noqa: PLC0415

    smp.init({"pipeline_parallel_degree": 2, "microbatches": 2})
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    for number, layer in enumerate(layers):
        smp.set_partition(layer, number)
    model = smp.DistributedModel(layers)

    @smp.step
    def train(batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(batch).sum()
        model.backward(loss)
        return loss

    return lambda: train(torch.ones(4, 8))


step = over_smddp() if WAY == "smddp" else over_a_pipeline()
try:
    step()
    print("stepping", flush=True)
    while True:
        step()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
finally:
    print("cleaned up", flush=True)

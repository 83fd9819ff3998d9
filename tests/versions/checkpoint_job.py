# SPDX-License-Identifier: Apache-2.0
"""usage: checkpoint_job.py save|load CONFIG FOLDER

Two steps, saved; or a checkpoint loaded into a job that drew other weights. Rank 0 prints the
sum of all weights and of the optimizer's state.
"""

from __future__ import annotations

import hashlib
import json
import sys

import smdistributed.modelparallel.torch as smp
import torch


@smp.step
def step(model, inputs):
    loss = model(inputs).square().mean()
    model.backward(loss)
    return loss


def digest(value) -> str:
    """Digest of all tensors and numbers of a state, in its order."""
    sums = hashlib.sha256()

    def add(part) -> None:
        if isinstance(part, torch.Tensor):
            sums.update(part.detach().contiguous().numpy().tobytes())
        elif isinstance(part, dict):
            for key in sorted(part, key=str):
                sums.update(str(key).encode())
                add(part[key])
        elif isinstance(part, (list, tuple)):
            for item in part:
                add(item)
        else:
            sums.update(str(part).encode())

    add(value)
    return sums.hexdigest()


def main() -> None:
    mode, config, folder = sys.argv[1:]
    smp.init({"microbatches": 2, "ddp": True, **json.loads(config)})
    torch.manual_seed(0 if mode == "save" else 1)
    layers = [torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Tanh(), torch.nn.Linear(8, 4)]
    model = smp.DistributedModel(torch.nn.Sequential(*layers))
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=0.1))
    torch.manual_seed(2 + smp.dp_rank())
    if mode == "save":
        for _ in range(2):
            optimizer.zero_grad()
            step(model, torch.randn(4, 8))
            optimizer.step()
        smp.save_checkpoint(folder, "two", partial=True)
    else:
        smp.resume_from_checkpoint(folder, partial=True)
        step(model, torch.randn(4, 8))  # the first step puts into place what was loaded
    state = model.state_dict(), optimizer.state_dict()["state"]
    if smp.rank() == 0:
        print("digest", digest(state))
    smp.shutdown()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Trains for some updates, stops itself by a signal where it is told to, and goes on from what was
saved. Prints what it does, and a digest of the weights at the end.

Arguments: settings as JSON, folder of checkpoints, batches of an update, and who gets SIGTERM when:
rank and update; -1: nobody."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

UPDATES = 6
SETTINGS, FOLDER = json.loads(sys.argv[1]), Path(sys.argv[2])
BATCHES, RANK, UPDATE = (int(word) for word in sys.argv[3:6])

smp.init(SETTINGS)
torch.manual_seed(1)
model = smp.DistributedModel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01))


@smp.step
def step(x: torch.Tensor) -> torch.Tensor:
    loss = model(x).square().mean()
    model.backward(loss)
    return loss


def say(text: str) -> None:
    print(f"rank {smp.rank()} {text}\n", end="", flush=True)


done, is_resumed = 0, (FOLDER / "newest").exists()
if is_resumed:
    done = smp.resume_from_checkpoint(str(FOLDER))["updates"]
    say(f"resumed at {done}")
smp.checkpoint_on_signal(
    lambda: smp.save_checkpoint(str(FOLDER), "stopped", user_content={"updates": done})
)
signal.signal(signal.SIGTERM, lambda *_: say("handles the signal"))

for update in range(done, UPDATES):
    optimizer.zero_grad()
    for batch in range(BATCHES):
        if (smp.rank(), update, is_resumed, batch) == (RANK, UPDATE, False, BATCHES // 2):
            os.kill(os.getpid(), signal.SIGTERM)
        torch.manual_seed(100 * update + 10 * batch + smp.dp_rank())
        step(torch.randn(4, 8))
    optimizer.step()
    done = update + 1

whole = model.state_dict()
digest = hashlib.sha256()
for name in sorted(whole):
    digest.update(whole[name].contiguous().numpy().tobytes())
say(f"ends with {digest.hexdigest()}")

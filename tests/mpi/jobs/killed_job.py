# SPDX-License-Identifier: Apache-2.0
"""Trains, saves every few updates, and is killed at a random moment of each of its first starts.
Says how far it had come, and prints a digest of the weights at the end. In the environment KILLS
says how many starts are killed, KILLED_WITHIN the longest time until then [s], and UPDATES how many
updates are made; no start that is killed comes to the end before it is."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import threading
import time
from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

UPDATES, EVERY = int(os.environ["UPDATES"]), 5
KILLS, LONGEST = int(os.environ["KILLS"]), float(os.environ["KILLED_WITHIN"])
START = int(os.environ.get("SM_RESTART_COUNT", "0"))
FOLDER = os.environ["SM_CHECKPOINT_DIR"]

smp.init()
chance = random.Random(START)  # the same on all ranks
victim, after = chance.randrange(smp.size()), chance.uniform(0, LONGEST)
if START < KILLS and smp.rank() == victim:
    killer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL))
    killer.daemon = True
    killer.start()

torch.manual_seed(1)
model = smp.DistributedModel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01))


@smp.step
def step(x: torch.Tensor) -> torch.Tensor:
    loss = model(x).square().mean()
    model.backward(loss)
    return loss


done = 0
if (Path(FOLDER) / "newest").exists():
    done = smp.resume_from_checkpoint(FOLDER)["updates"]
if smp.rank() == 0:
    print(end=f"start {START} goes on at {done}\n", flush=True)
limit = UPDATES if START >= KILLS else UPDATES * (START + 1) // (KILLS + 1)
while done < UPDATES:
    while done >= limit:
        time.sleep(0.1)
    optimizer.zero_grad()
    torch.manual_seed(100 + done)
    step(torch.randn(4, 8))
    optimizer.step()
    done += 1
    time.sleep(0.02)
    if done % EVERY == 0:
        content = {"updates": done}
        smp.save_checkpoint(
            FOLDER, f"at_{done}", user_content=content, num_kept_partial_checkpoints=2
        )

digest = hashlib.sha256()
for _, value in sorted(model.state_dict().items()):
    digest.update(value.contiguous().numpy().tobytes())
if smp.rank() == 0:
    print(end=f"ends with {digest.hexdigest()}\n", flush=True)

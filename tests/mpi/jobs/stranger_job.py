# SPDX-License-Identifier: Apache-2.0
"""A job of two ranks, and a stranger who reaches its store while rank 0 waits for rank 1: reads
the settings of the job there, and puts others in their place. Prints what the stranger has read and
what a rank says of it."""

from __future__ import annotations

import os
import threading
import time

import smdistributed.modelparallel.torch as smp
import torch.distributed as dist

DONE = "a stranger was here"


def connect() -> dist.TCPStore:
    """Without the job's secret, as whoever reaches the port can."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(address, port, is_master=False, wait_for_workers=False)


def overwrite() -> None:
    store = connect()
    while not (keys := [key for key in store.list_keys() if key.endswith("/settings")]):
        time.sleep(0.01)
    print("stranger read", store.get(keys[0]), flush=True)
    store.set(keys[0], b'{"microbatches": 7}')
    store.set(DONE, b"")


if os.environ["RANK"] == "0":
    threading.Thread(target=overwrite, daemon=True).start()
else:
    connect().wait([DONE])
smp.init({"ddp": True})

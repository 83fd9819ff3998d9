# SPDX-License-Identifier: Apache-2.0
"""Rank 0 makes a group, for which it waits in the job's store, while a receive of its is pending;
rank 1 comes to the group only after its send."""

from __future__ import annotations

import time
from datetime import timedelta

import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("smddp", timeout=timedelta(seconds=20))
    data = torch.full((1 << 20,), float(dist.get_rank()))
    if dist.get_rank() == 0:
        work = dist.irecv(data, 1)
        group = dist.new_group([0, 1], backend="smddp")
        work.wait()
        assert data.unique().tolist() == [1.0]
    else:
        time.sleep(1)
        dist.send(data, 0)
        group = dist.new_group([0, 1], backend="smddp")
    dist.all_reduce(data, group=group)
    assert data.unique().tolist() == [2.0]
    print("the pair and the group are done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

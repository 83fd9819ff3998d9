# SPDX-License-Identifier: Apache-2.0
"""One rank of a plain FSDP2 script that saves through our writer: dcp_job.py FOLDER HOW."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from smdistributed.modelparallel.checkpoint import StorageReader, StorageWriter
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def trained(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(10, 33), nn.Linear(33, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 10)).sum().backward()
    optimizer.step()
    return model, optimizer


def main() -> None:
    folder, how = sys.argv[1:]
    dist.init_process_group("gloo")
    saved, loaded = trained(1), trained(2)
    model, optimizer = get_state_dict(*saved)
    content = {"model": model, "optimizer": optimizer}
    if how == "asynchronous":
        dcp.async_save(content, storage_writer=StorageWriter(folder)).result()
    else:
        dcp.save(content, storage_writer=StorageWriter(folder))
    model, optimizer = get_state_dict(*loaded)
    content = {"model": model, "optimizer": optimizer}
    dcp.load(content, storage_reader=StorageReader(folder))
    set_state_dict(
        *loaded, model_state_dict=content["model"], optim_state_dict=content["optimizer"]
    )
    pairs = zip(saved[0].parameters(), loaded[0].parameters(), strict=True)
    assert all(torch.equal(one.to_local(), other.to_local()) for one, other in pairs)
    one, other = (list(of.state.values()) for _, of in (saved, loaded))
    for a, b in zip(one, other, strict=True):
        for key in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(a[key].to_local(), b[key].to_local()), key
    print("same", flush=True)
    dist.destroy_process_group()


main()

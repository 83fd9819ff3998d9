# SPDX-License-Identifier: Apache-2.0
"""SMP_CPU=1: what scripts do on CUDA devices, on a machine without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

# By itself: a process that has patched torch keeps it so.
PROGRAM = """
import json, sys
import torch
from torch import nn
import smdistributed.modelparallel.torch as smp

smp.init()
told = {}
for text in json.loads(sys.argv[1]):
    try:
        told[text] = str(eval(text).device)
    except Exception as error:
        told[text] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
"""
ON_THE_CPU = (
    "torch.ones(2).to(torch.cuda.current_device())",
    "torch.ones(2).to(smp.local_rank())",
    "torch.ones(2).to(device=0)",
    "torch.ones(2).cuda(0, non_blocking=True)",
    "torch.ones(2).type('torch.cuda.HalfTensor')",
    "torch.ones(2, device=0)",
    "torch.asarray([1.0], device='cuda')",
    "torch.normal(0.0, 1.0, (2,), device='cuda:1')",
    "torch.empty_strided((2, 2), (1, 2), device='cuda')",
    "torch.hann_window(4, device='cuda')",
    "torch.ones(1).new_tensor([1.0], device='cuda')",
    "nn.Linear(2, 2, device=0).weight",
    "nn.Linear(2, 2).to(0).weight",
    "torch.cuda.device(0).__enter__() or torch.ones(1)",
    "torch.cuda.synchronize() or torch.cuda.device_of(torch.ones(1)).__enter__() or torch.ones(1)",
    # Two names of one function would be an assertion of torch.compile.
    "torch.compile(torch.neg, backend='eager')(torch.ones(1))",
)
NOT_THERE = (
    "torch.cuda.get_device_properties(0)",
    "torch.cuda.get_device_capability()",
    "torch.cuda.mem_get_info()",
    "torch.cuda.get_rng_state()",
    "torch.cuda.current_stream()",
    "torch.cuda.Stream()",
    "torch.cuda.CUDAGraph()",
    "torch.cuda.Event().record()",
)


@pytest.mark.skipif(torch.cuda.is_available(), reason="SMP_CPU has no effect where a GPU is")
def test_what_scripts_do_on_cuda_devices_works_or_names_the_switch() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([*ON_THE_CPU, *NOT_THERE])],
        env=os.environ | {"SMP_CPU": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    told = json.loads(run.stdout.splitlines()[-1])

    assert {text: told[text] for text in ON_THE_CPU} == dict.fromkeys(ON_THE_CPU, "cpu")
    silent = {text: told[text] for text in NOT_THERE if "SMP_CPU=1" not in told[text]}
    assert not silent

# SPDX-License-Identifier: Apache-2.0
"""SMP_CPU=1: what scripts do on CUDA devices, on a machine without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

# By itself: a process that has patched torch keeps it so.
PROGRAM = """
import json, sys
import torch
from torch import nn
import smdistributed.modelparallel.torch as smp

def inside(device, make):
    with torch.device(device):
        return make()

def by_default(device, make):
    torch.set_default_device(device)
    try:
        return make()
    finally:
        torch.set_default_device(None)

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
    "inside('cuda', lambda: torch.ones(1))",
    "inside('meta', lambda: torch.ones(1, device='cuda'))",
    "by_default('cuda:0', lambda: nn.Linear(2, 2).weight)",
    # Two names of one function would be an assertion of torch.compile.
    "torch.compile(torch.neg, backend='eager')(torch.ones(1))",
)
ELSEWHERE = (
    "inside('meta', lambda: torch.arange(2))",
    "inside('meta', lambda: nn.Linear(2, 2).weight)",
    "by_default('meta', lambda: torch.rand(2))",
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
        [sys.executable, "-c", PROGRAM, json.dumps([*ON_THE_CPU, *ELSEWHERE, *NOT_THERE])],
        env=os.environ | {"SMP_CPU": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    told = json.loads(run.stdout.splitlines()[-1])

    assert {text: told[text] for text in ON_THE_CPU} == dict.fromkeys(ON_THE_CPU, "cpu")
    assert {text: told[text] for text in ELSEWHERE} == dict.fromkeys(ELSEWHERE, "meta")
    silent = {text: told[text] for text in NOT_THERE if "SMP_CPU=1" not in told[text]}
    assert not silent


PRETRAINED = """
import sys
import torch
import smdistributed.modelparallel.torch as smp
from transformers import AutoModelForCausalLM, LlamaConfig

smp.init()
eager = AutoModelForCausalLM.from_config(
    LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                num_attention_heads=1, num_key_value_heads=1)
)
eager.save_pretrained(sys.argv[1])
read = AutoModelForCausalLM.from_pretrained(sys.argv[1])
for kind in ("named_parameters", "named_buffers"):
    own, expected = (dict(getattr(model, kind)()) for model in (read, eager))
    assert own.keys() == expected.keys() and own
    print([name for name, one in own.items() if not torch.equal(one, expected[name])])
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="SMP_CPU has no effect where a GPU is")
def test_pretrained_models_have_the_buffers_of_others(tmp_path: Path) -> None:
    """They are made on the device `meta`, and those that no file has are computed afterwards."""
    run = subprocess.run(
        [sys.executable, "-c", PRETRAINED, str(tmp_path)],
        env=os.environ | {"SMP_CPU": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    assert run.stdout.splitlines()[-2:] == ["[]", "[]"]

# SPDX-License-Identifier: Apache-2.0
"""Scripts of SMP v2 that were written for GPUs and for packages that are not there."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys

import pytest
import torch
from smdistributed.sagemaker._patches.cache_flushes import CacheFlushes
from smdistributed.sagemaker.logger import get_logger

ABSENT = not any(
    one.name.startswith("transformer") and "engine" in one.name
    for one in importlib.metadata.distributions()
)
CALLS = """
import smdistributed.sagemaker
import torch
import torch.sagemaker as tsm
import torch.distributed as dist

import tempfile
folder = tempfile.mkdtemp()
dist.init_process_group("nccl", f"file://{folder}/store", rank=0, world_size=1)
for name in (dist.Backend.NCCL, "cpu:gloo,cuda:nccl"):
    assert dist.get_backend(dist.new_group([0], backend=name)) == "gloo"
assert dist.get_backend() == "gloo"
device = dist.get_rank() % torch.cuda.device_count()
from transformers import AutoModelForCausalLM, LlamaConfig
tsm.init()
torch.cuda.set_device(device)
torch.cuda.nvtx.range_push("iteration")
torch.cuda.cudart().cudaProfilerStart()
config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                     num_attention_heads=1, num_key_value_heads=1)
model = AutoModelForCausalLM.from_config(config, attn_implementation="flash_attention_2")
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(model, device_id=torch.cuda.current_device())
model(input_ids=torch.ones(1, 4, dtype=torch.int64).cuda()).logits.sum().backward()
torch.cuda.nvtx.range_pop()
assert torch.cuda.nvtx.range_push is not torch.cuda.nvtx.range_pop
print("trained", model.process_group is not None)
dist.destroy_process_group()
"""
NAMES = """
import smdistributed.sagemaker
import transformer_engine
from megatron.core.dist_checkpointing.mapping import CheckpointingException
from transformer_engine.common.recipe import DelayedScaling, Format

assert issubclass(CheckpointingException, Exception) and Format.HYBRID
for use in (lambda: DelayedScaling(fp8_format=Format.HYBRID),
            lambda: transformer_engine.pytorch.fp8_autocast(enabled=True)):
    try:
        use()
    except (NotImplementedError, AttributeError) as error:
        print(error)
import importlib.metadata
assert not any(True for name in ("transformer-engine", "megatron-core")
               for one in importlib.metadata.distributions() if one.name == name)
"""


def python(code: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120,
        env=os.environ | variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="SMP_CPU has no effect where a GPU is")
def test_a_script_for_gpus_trains_on_the_cpu() -> None:
    assert python(CALLS, SMP_CPU="1") == "trained True\n"


@pytest.mark.skipif(not ABSENT, reason="Transformer Engine is installed")
def test_imports_of_absent_packages_work_and_their_use_is_refused() -> None:
    told = python(NAMES)

    assert "transformer_engine.common.recipe.DelayedScaling is used" in told
    assert "transformer_engine.pytorch" in told


def test_flushes_of_a_gpus_cache_are_told_once_a_step(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counts = iter([2, 2, 5, 5])
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {"num_alloc_retries": next(counts)})
    logger = get_logger()
    logger.addHandler(caplog.handler)
    layer = torch.nn.Linear(1, 1)
    layer.register_forward_pre_hook(CacheFlushes())

    for _ in range(3):
        layer(torch.ones(1))

    logger.removeHandler(caplog.handler)
    assert [one.args for one in caplog.records] == [(3,)]

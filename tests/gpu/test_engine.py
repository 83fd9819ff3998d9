# SPDX-License-Identifier: Apache-2.0
"""The engine on a GPU. With one rank: backwards of microbatches on one thread, streams, offload.
With two: calls that block in the middle of a backward.

The jobs of a test run at the same time: most of theirs is the start of Python, torch and CUDA.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from tests.mpi.launching import Outcome, run_alone, run_torchrun, together


def only(device: torch.device) -> dict[str, str]:
    """Variables for a job on it: the library takes a GPU where it sees one."""
    return {} if device.type == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}


def engine_job(device: torch.device, *words: str) -> Callable[[], Outcome]:
    return partial(run_alone, "../../gpu/engine_job.py", device.type, *words, **only(device))


def pipeline_job(device: torch.device, *words: str) -> Callable[[], Outcome]:
    job = "../../gpu/pipeline_job.py"
    return partial(run_torchrun, 2, job, device.type, *words, **only(device))


def agree(ranks: int, *jobs: Callable[[], Outcome]) -> None:
    for outcome in together(*jobs):
        assert outcome.code == 0, outcome.output
        assert outcome.output.count("gradients agree") == ranks, outcome.output


def test_a_step_learns_what_pytorch_learns(device: torch.device) -> None:
    ways = [(offload, stream) for offload in ("plain", "offload") for stream in ("default", "side")]

    agree(1, *(engine_job(device, *way) for way in ways))


def test_two_ranks_that_share_a_device_learn_what_pytorch_learns(device: torch.device) -> None:
    """``reentrant``: with a backward inside of the backward."""
    cases = [("simple", "plain"), ("interleaved", "plain"), ("interleaved", "reentrant")]

    agree(2, *(pipeline_job(device, *case) for case in cases))


@pytest.mark.suspect
def test_ranks_whose_first_module_or_gradients_are_elsewhere(device: torch.device) -> None:
    """The batch goes where this rank computes, and a rank that has no gradient clips with the
    others, by their backend."""
    agree(2, pipeline_job(device, "interleaved", "clip"))


@pytest.mark.suspect
def test_the_use_of_a_pipeline_is_that_of_its_devices(device: torch.device) -> None:
    """Not of the hosts, which on a GPU have started all long before it is done."""
    agree(2, pipeline_job(device, "interleaved", "busy"))


@pytest.mark.suspect
def test_ranks_that_share_a_gpu(gpu: torch.device) -> None:
    agree(2, *(pipeline_job(gpu, "interleaved", case) for case in ("elsewhere", "side")))

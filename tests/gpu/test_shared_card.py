# SPDX-License-Identifier: Apache-2.0
"""Jobs whose ranks share one GPU: what they learn is what one process learns.

They start together, as many at a time as there are processors for.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

from tests.gpu.conftest import fail_if_torch_misses_the_gpu
from tests.gpu.parallel_job import CASES, train_alone
from tests.mpi.launching import Outcome, run_torchrun

pytestmark = pytest.mark.shared_card
GPU = torch.cuda.is_available()
KIND = "cuda" if GPU else "cpu"
#: On the CPU other tests have these, with other models; a rehearsal shows that all can run.
CHOSEN = (
    tuple(CASES) if GPU or os.environ.get("SMP_GPU_REHEARSAL") == "1" else ("pp2_tp2", "resume")
)
AT_A_TIME = max(1, len(os.sched_getaffinity(0)) // 4)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Outcome]]]:
    fail_if_torch_misses_the_gpu()
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        started = {}
        for name in CHOSEN:
            folder = str(tmp_path_factory.mktemp(name))
            hidden = {} if GPU else {"CUDA_VISIBLE_DEVICES": ""}
            job = ("../../gpu/parallel_job.py", KIND, name, folder)
            started[name] = threads.submit(run_torchrun, CASES[name].ranks, *job, **hidden)
        yield started
        for future in started.values():
            future.cancel()


@functools.cache
def alone(optimizer: str) -> list[float]:
    losses = train_alone(torch.device(KIND), optimizer)
    assert losses[-1] < 0.8 * losses[0], "it learns nothing, so that nothing is shown"
    return losses


@pytest.mark.parametrize("name", CHOSEN)
def test_a_job_learns_what_one_process_learns(name: str, jobs: dict[str, Future[Outcome]]) -> None:
    outcome = jobs[name].result(timeout=600)

    assert outcome.code == 0, outcome.output
    by_rank = [json.loads(text) for text in re.findall(r"LOSSES (\[[^]]*\])", outcome.output)]
    assert len(by_rank) == CASES[name].ranks, outcome.output
    losses = torch.tensor(by_rank, dtype=torch.float64).mean(0)
    expected = torch.tensor(alone(CASES[name].optimizer), dtype=torch.float64)
    torch.testing.assert_close(losses, expected, rtol=CASES[name].tolerance, atol=0)

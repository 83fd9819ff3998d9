# SPDX-License-Identifier: Apache-2.0
"""The models of PyTorch's own tests learn under the library what they learn in one process."""

from __future__ import annotations

import functools

import pytest
import torch
from jobs import torch_model_jobs

SHARDED = {"ddp": True, "sdp_param_persistence_threshold": 0, "sdp_gradient_clipping": 0}
SETTINGS = {
    "pipeline": (2, {"pipeline_parallel_degree": 2}),
    "pipeline and replicas": (4, {"pipeline_parallel_degree": 2, "ddp": True}),
    "sharded": (4, {"sharded_data_parallel_degree": 4, **SHARDED}),
    "sharded in groups": (4, {"sharded_data_parallel_degree": 2, **SHARDED}),
}


@functools.cache
def alone(kind: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    return torch_model_jobs.alone(kind)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", torch_model_jobs.KINDS)
def test_it_learns_what_one_process_learns(pool, kind, setting):
    size, settings = SETTINGS[setting]
    microbatches = torch_model_jobs.MICROBATCHES

    results = pool(size).run(
        "torch_model_jobs:train", {**settings, "microbatches": microbatches}, kind
    )

    losses, state = alone(kind)
    # Doubles; masters of shards have 32 bits.
    exact = "sharded" not in setting
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if exact else {"rtol": 1e-4, "atol": 1e-5}
    for own_losses, own_state in results:
        torch.testing.assert_close(torch.tensor(own_losses), torch.tensor(losses), **tolerance)
        assert own_state.keys() == state.keys()
        for name, value in state.items():
            torch.testing.assert_close(own_state[name], value, **tolerance, msg=name)

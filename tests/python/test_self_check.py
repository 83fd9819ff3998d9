# SPDX-License-Identifier: Apache-2.0
"""SMP_SELF_CHECK in one process: what is refused, what it needs, and that nothing is left of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch._self_check import self_check
from smdistributed.modelparallel.torch._self_check.findings import Divisors, cause_of_gradient
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError
from torch import nn


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SMP_SELF_CHECK", "1")
    smp.init({"microbatches": 2})
    yield
    smp.shutdown()


def test_a_model_that_does_not_fit_is_refused_with_its_bytes(
    session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_check, "available_bytes", lambda: 1000)

    with pytest.raises(SMPUnsupportedError, match=r"needs 3,456 bytes .* and 1,000 are free"):
        smp.DistributedModel(nn.Linear(8, 8))


def test_a_module_that_cannot_be_copied_is_refused(session) -> None:
    module = nn.Linear(2, 2)
    module.lock = threading.Lock()

    with pytest.raises(SMPUnsupportedError, match=r"cannot copy the module .* pickle"):
        smp.DistributedModel(module)


def test_the_least_of_host_and_container_counts(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 90 kB\nMemAvailable: 50 kB\n")
    assert self_check.available_bytes(tmp_path) == 50 * 1024

    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("900\n")
    assert self_check.available_bytes(tmp_path) == 50 * 1024, "no limit"
    (group / "memory.max").write_text("1000\n")
    (group / "memory.stat").write_text("anon 1\ninactive_file 30\n")
    assert self_check.available_bytes(tmp_path) == 130
    assert self_check.available_bytes(tmp_path / "nothing") is None


def test_training_goes_on_as_without_it(session, monkeypatch: pytest.MonkeyPatch) -> None:
    def weights() -> list[torch.Tensor]:
        torch.manual_seed(1)
        module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
        model = smp.DistributedModel(module)
        optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters()))

        @smp.step
        def train(x):
            model.backward(model(x).square().mean())

        for _ in range(3):
            optimizer.zero_grad()
            train(torch.randn(4, 4))
            optimizer.step()
        return [value.clone() for value in module.state_dict().values()]

    checked = weights()
    smp.shutdown()
    monkeypatch.delenv("SMP_SELF_CHECK")
    smp.init({"microbatches": 2})

    for one, other in zip(checked, weights(), strict=True):
        assert torch.equal(one, other), "also buffers, and what dropout drew"


def cause(found: torch.Tensor, plain: torch.Tensor, **others: torch.Tensor) -> str:
    divisors = Divisors(replicas=2, microbatches=4, loss_scale=1024.0)
    return cause_of_gradient(found, {"w": plain, **others}, "w", None, divisors, 1e-4)


def test_causes_are_told_apart() -> None:
    torch.manual_seed(0)
    plain, other = torch.randn(8, 8), torch.randn(8, 8)

    assert cause(plain * 0, plain).startswith("a lost gradient")
    assert cause(other, plain, bias=other) == "swapped parameters: it is the gradient of bias"
    assert "the mean over the replicas was not taken" in cause(plain * 2, plain)
    assert "the mean over the microbatches was taken twice" in cause(plain / 4, plain)
    assert "the loss scale was not taken" in cause(plain * 1024, plain)
    assert cause(plain * 3, plain) == "a wrong divisor: it is 3 times as large"
    assert "in another order" in cause(plain.flip(0), plain)
    assert "in fewer bits" in cause(plain.bfloat16().float(), plain)
    assert "part of the batch" in cause(plain + 0.3 * other, plain)
    assert "nothing in common" in cause(-5 * other, plain)

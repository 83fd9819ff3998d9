# SPDX-License-Identifier: Apache-2.0
"""Places of tensors on a machine with GPUs, shown without one: fake tensors have CUDA devices that
compute nothing, and the operations on them are watched."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from smdistributed import _runtime
from smdistributed.modelparallel.torch._pipeline.splitting import InputSplit
from smdistributed.modelparallel.torch._ranks.devices import (
    check_own_gpu,
    computing_device,
    tell_of_missing_gpu_code,
)
from smdistributed.modelparallel.torch._replicas import replicas
from smdistributed.modelparallel.torch._sharding.master_parameters import MasterNorms
from smdistributed.modelparallel.torch._slices.whole_norms import WholeNorms
from smdistributed.modelparallel.torch._state.optimizer_states import OptimizerStates
from smdistributed.modelparallel.torch.exceptions import SMPDeviceError
from torch import nn
from torch._subclasses import FakeTensorMode, fake_tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Watch(TorchDispatchMode):
    """Copies from a GPU to the CPU: for each whether the host goes on before it has ended. Copies
    the other way are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.without_waiting: list[bool] = []
        self.to_gpu = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and args[0].is_cuda and result.is_cpu:
            self.without_waiting.append(bool((kwargs or {}).get("non_blocking", False)))
        if func is torch.ops.aten._to_copy.default and args[0].is_cpu and result.is_cuda:
            self.to_gpu += 1
        return result


@contextmanager
def fake_gpus(
    monkeypatch: pytest.MonkeyPatch, *, current: int = 0, count: int = 1
) -> Iterator[Watch]:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    # Torch would begin to use the GPU that it is told of.
    monkeypatch.setattr(fake_tensor, "init_gpu_context", lambda device: None)
    with FakeTensorMode(allow_non_fake_inputs=True), Watch() as watch:
        yield watch


def test_a_batch_that_goes_to_the_cpu_is_there_when_the_step_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def function(batch: Any) -> None: ...

    with fake_gpus(monkeypatch) as watch:
        batch = torch.ones(4, 2, device="cuda:0")
        InputSplit(function).split((batch,), {}, 2, device=torch.device("cpu"))

    assert watch.without_waiting == [False, False]


def test_a_batch_goes_where_the_rank_computes_not_where_a_placeholder_is(
    smp: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = smp.DistributedModel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    first, second = model.get_module()
    # The first one's is another partition's: what stands for it here stayed where it was made.
    first._parameters["weight"] = nn.Parameter(torch.empty(2, 2, device="meta"))
    monkeypatch.setattr(model, "local_parameters", lambda: iter(second.parameters()))
    seen = []

    @smp.step
    def step(batch: torch.Tensor) -> None:
        seen.append(batch.device.type)

    step(torch.ones(4, 2))

    assert seen == ["cpu", "cpu"]


def test_a_rank_without_parameters_computes_on_its_gpu(
    smp: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = smp.DistributedModel(nn.Linear(2, 2))
    monkeypatch.setattr(model, "local_parameters", lambda: iter(()))
    module = importlib.import_module("smdistributed.modelparallel.torch.step")

    with fake_gpus(monkeypatch, current=3):
        assert module._device() == torch.device("cuda", 3)


def test_a_rank_without_gradients_clips_by_the_backend_of_the_others(
    smp: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tensor of the CPU would go to Gloo while the others wait in NCCL."""
    with fake_gpus(monkeypatch, current=1):
        norm = smp.clip_grad_norm_([nn.Parameter(torch.ones(2, device="cuda:1"))], 1.0)

    assert norm.device == torch.device("cuda", 1)


def test_the_norm_of_many_gradients_waits_for_the_gpu_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_gpus(monkeypatch) as watch:
        parameters = [torch.ones(3, device="cuda:0", requires_grad=True) for _ in range(300)]
        for parameter in parameters:
            parameter.grad = torch.ones(3, device="cuda:0")
        # A fake tensor has no value to take the root of.
        monkeypatch.setattr(torch.Tensor, "item", lambda self: 0.0)
        WholeNorms().of_gradients(parameters)

    assert watch.without_waiting == [False]


def _run_of(leaf: torch.Tensor, parameter: int) -> Any:
    return SimpleNamespace(parameter=leaf, pieces=[SimpleNamespace(parameter=parameter)])


def test_norms_of_many_masters_travel_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One a parameter would be a wait for the GPU each, there and back."""
    masters: Any = SimpleNamespace(
        sharded=SimpleNamespace(parameters=range(300)),
        core=SimpleNamespace(norms_by_number=lambda powers, _norm_type: powers),
    )
    with fake_gpus(monkeypatch) as watch:
        runs = [torch.ones(3, device="cuda:0") for _ in range(300)]
        masters.runs = [_run_of(run, number) for number, run in enumerate(runs)]
        norms = MasterNorms(masters).of(runs, runs)

    assert watch.without_waiting == [False]
    assert watch.to_gpu == 1
    assert {norm.device.type for norm in norms} == {"cuda"}


def test_each_master_gets_its_own_norm() -> None:
    runs = [torch.full((count,), 2.0, dtype=kind) for count, kind in
            ((1, torch.float32), (4, torch.float64), (9, torch.float32))]  # fmt: skip
    masters: Any = SimpleNamespace(
        sharded=SimpleNamespace(parameters=runs),
        runs=[_run_of(run, number) for run, number in zip(runs, (2, 0, 1), strict=True)],
        core=SimpleNamespace(norms_by_number=lambda powers, norm_type: powers ** (1 / norm_type)),
    )

    norms = MasterNorms(masters).of(runs, runs)

    assert [(norm.item(), norm.dtype) for norm in norms] == [
        (2, torch.float32), (4, torch.float64), (6, torch.float32)
    ]  # fmt: skip


@pytest.mark.parametrize("norm_type", [1.0, 3.0, float("inf")])
def test_other_norms_of_many_gradients_wait_for_the_gpu_once(
    monkeypatch: pytest.MonkeyPatch, norm_type: float
) -> None:
    with fake_gpus(monkeypatch) as watch:
        grads = [torch.ones(3, device="cuda:0") for _ in range(300)]
        _runtime.sum_of_powers(grads, norm_type)

    assert watch.without_waiting == [False]


def test_the_norm_of_many_gradients_is_that_of_all() -> None:
    parameters = [torch.zeros(count, requires_grad=True) for count in (1, 2, 3)]
    for number, parameter in enumerate(parameters):
        parameter.grad = torch.full_like(parameter, number + 1.0)

    assert WholeNorms().of_gradients(parameters) == pytest.approx((1 + 8 + 27) ** 0.5)
    assert WholeNorms().of_gradients([]) == 0.0


class Asked(TorchDispatchMode):
    """The operations, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_labels_of_a_device_are_checked_there() -> None:
    """The host cannot look at them without a wait; unchecked, a bad one gave a finite loss."""
    alone = _runtime.TensorExchange("", 1, 0)
    with Asked() as asked:
        alone.vocabulary_loss(
            torch.empty(4, 8, device="meta"), torch.empty(4, dtype=torch.int64, device="meta"), -100
        )

    assert "aten._assert_async.msg" in asked.names


@pytest.mark.parametrize(("device", "expected"), [("cpu", ""), ("cuda:0", "DP on the CPU")])
def test_ranks_agree_on_the_cpu_who_has_gradients_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, device: str, expected: str
) -> None:
    """The host reads the answer: over the gradients' own group it would wait for the GPU."""
    groups = SimpleNamespace(
        cpu_group=lambda kind: SimpleNamespace(group_name=f"{kind} on the CPU")
    )
    monkeypatch.setattr(
        replicas.state, "require_initialized", lambda _what: SimpleNamespace(groups=groups)
    )
    with fake_gpus(monkeypatch):
        parameters = [nn.Parameter(torch.ones(2, device=device)) for _ in range(2)]

        assert replicas._flags_group_name("DP", parameters) == expected


# --- Two ranks on one GPU ---


@pytest.fixture
def uuids(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """UUIDs of the devices, by number."""
    found = ["GPU-a", "GPU-b"]
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda number: SimpleNamespace(uuid=found[number])
    )
    return found


def test_ranks_on_gpus_of_their_own_are_let_through(
    monkeypatch: pytest.MonkeyPatch, uuids: list[str]
) -> None:
    store = dist.HashStore()
    for rank in range(len(uuids)):
        with fake_gpus(monkeypatch, current=rank, count=2):
            for _ in range(2):  # a second model
                check_own_gpu(store, rank, rank, by_nccl=True)


def test_a_rank_that_set_no_device_is_told_so(
    monkeypatch: pytest.MonkeyPatch, uuids: list[str]
) -> None:
    store = dist.HashStore()
    with fake_gpus(monkeypatch, current=0, count=2):
        check_own_gpu(store, 0, 0, by_nccl=True)

        with pytest.raises(SMPDeviceError) as refused:
            check_own_gpu(store, 1, 1, by_nccl=True)

    text = str(refused.value)
    assert f"ranks 0 and 1 both compute on the GPU {uuids[0]}, here CUDA device 0" in text
    assert "torch.cuda.set_device(smp.local_rank())" in text
    assert '"ddp_dist_backend": "smddp"' in text


def test_more_ranks_than_gpus_are_told_so(
    monkeypatch: pytest.MonkeyPatch, uuids: list[str]
) -> None:
    store = dist.HashStore()
    with fake_gpus(monkeypatch, current=0, count=1):
        check_own_gpu(store, 4, 0, by_nccl=True)

        with pytest.raises(SMPDeviceError, match="shows 1 to a rank with the local number 1"):
            check_own_gpu(store, 5, 1, by_nccl=True)
    assert len(uuids) == 2


def test_ranks_may_share_a_gpu_without_nccl(
    monkeypatch: pytest.MonkeyPatch, uuids: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    store = dist.HashStore()
    with fake_gpus(monkeypatch, current=0, count=1):
        for rank in (0, 1):
            check_own_gpu(store, rank, rank, by_nccl=False)

    told = capfd.readouterr().err
    assert told.count("goes through the memory of the host") == 1
    assert uuids[0] in told


@pytest.mark.parametrize(("rank", "built", "told"), [(0, False, 1), (0, True, 0), (1, False, 0)])
def test_a_build_without_gpu_code_says_so_once(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    rank: int,
    built: bool,
    told: int,
) -> None:
    monkeypatch.setattr(_runtime, "HAS_CUDA", built)
    with fake_gpus(monkeypatch):
        tell_of_missing_gpu_code(rank)

    assert capfd.readouterr().err.count("-DSMP_WITH_CUDA=ON") == told


def test_without_a_gpu_there_is_nothing_to_share() -> None:
    store = dist.HashStore()
    for rank in range(2):
        check_own_gpu(store, rank, rank, by_nccl=True)

    assert store.num_keys() == 0
    assert computing_device() == torch.device("cpu")


@pytest.mark.parametrize("fused", [False, True])
def test_state_that_was_loaded_before_the_partition_follows_its_parameters(
    monkeypatch: pytest.MonkeyPatch, fused: bool
) -> None:
    with fake_gpus(monkeypatch):
        there = nn.Parameter(torch.zeros(3, device="cuda"))  # placed by the partition
        optimizer = torch.optim.Adam([there], fused=fused)
        optimizer.state[there] = {"step": torch.ones(()), "exp_avg": torch.ones(3)}

        OptimizerStates([optimizer], [], None).settle()

        devices = {name: value.device.type for name, value in optimizer.state[there].items()}
    assert devices == {"step": "cuda" if fused else "cpu", "exp_avg": "cuda"}

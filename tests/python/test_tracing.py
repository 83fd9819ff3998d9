# SPDX-License-Identifier: Apache-2.0
"""Traces of real models, and the module trees made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from smdistributed import _runtime
from smdistributed.modelparallel.torch._partition.module_trees import module_tree, recompute_bytes
from smdistributed.modelparallel.torch._partition.trace_recorder import Rates
from smdistributed.modelparallel.torch._partition.tracing import (
    EndOfTrace,
    Trace,
    TraceOptions,
    trace_step,
)
from torch import nn

WIDTH = 8
ANYWHERE = [TraceOptions("cpu"), TraceOptions("meta"), TraceOptions("cpu", memory_usage=True)]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.fc(self.norm(x)))


class Stack(nn.Module):
    """A list that is never called, a block used twice, a head tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, WIDTH)
        self.shared = Block()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.shared(self.embed(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(self.shared(x))


def step_of(model: nn.Module, *inputs: torch.Tensor) -> Callable[[], Any]:
    def run() -> None:
        output = model(*inputs)
        output.sum()
        raise EndOfTrace

    return run


def traced_stack(options: TraceOptions) -> tuple[Stack, Trace]:
    torch.manual_seed(3)
    model = Stack()
    return model, trace_step(model, step_of(model, torch.arange(12)), options)


def partition(
    tree: _runtime.ModuleTree, partitions: int, partitioner: str = "auto", **settings: float | str
) -> _runtime.JobPartition:
    """For a job of these settings, of a model in 32 bits."""
    text = json.dumps({"partitions": partitions, **settings})
    config = _runtime.make_parallel_config("", "", text, "settings")
    return _runtime.partition_job(
        tree,
        config,
        partitioner=partitioner,
        elements=1,
        parameter_bytes=4,
        replicas=1,
        on_gpus=False,
        device_bytes=0,
        recompute_bytes=0,
    )


def no_pins(_module: nn.Module) -> None:
    return None


def rows(model: nn.Module, trace: Trace) -> dict[str, Any]:
    names = {module: name for name, module in model.named_modules()}
    return {names[module]: seen for module, seen in trace.seen.items()}


@pytest.mark.parametrize("options", ANYWHERE)
def test_modules_are_seen_in_order_with_their_calls(options: TraceOptions) -> None:
    model, trace = traced_stack(options)
    seen = rows(model, trace)

    assert list(seen)[:5] == ["", "embed", "shared", "shared.norm", "shared.fc"]
    assert "blocks" not in seen, "a list is never called"
    assert seen["shared"].calls == 2
    assert seen["blocks.1"].calls == 1
    size = 12 * WIDTH * 4
    assert seen["blocks.0"].input_bytes == seen["blocks.0"].output_bytes == size
    assert seen["shared"].output_bytes == 2 * size
    assert seen["embed"].input_bytes == 12 * 8


@pytest.mark.parametrize("options", ANYWHERE)
def test_tensors_are_followed_from_maker_to_readers(options: TraceOptions) -> None:
    model, trace = traced_stack(options)
    names: dict[Any, str] = {module: name for name, module in model.named_modules()}
    names[None] = "step"
    flows = {
        (names[flow.producer], tuple(names[reader] for reader in flow.consumers))
        for flow in trace.flows
        if flow.consumers
    }

    assert ("step", ("embed",)) in flows
    assert ("embed", ("shared.norm", "shared")) in flows, "the residual reads it, too"
    assert ("blocks.0", ("blocks.1.norm", "blocks.1")) in flows
    assert ("head", ("step",)) in flows
    weights = 16 * WIDTH * 4
    assert all(flow.bytes != weights for flow in trace.flows), "parameters do not flow"


def test_shapes_alone_give_the_same_trace() -> None:
    _, real = traced_stack(TraceOptions("cpu", memory_usage=True))
    _, shapes = traced_stack(TraceOptions("meta", memory_usage=True))

    for ours, theirs in zip(real.seen.values(), shapes.seen.values(), strict=True):
        assert ours.time_ns == theirs.time_ns
        assert ours.input_bytes == theirs.input_bytes
        assert ours.output_bytes == theirs.output_bytes
        assert ours.saved_bytes == theirs.saved_bytes


def test_shapes_alone_compute_nothing() -> None:
    class Huge(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ x.new_ones(1 << 20, 1 << 20)).sum()  # 4 TiB

    model = nn.Sequential(nn.Linear(4, 1 << 20), Huge())

    trace = trace_step(model, step_of(model, torch.ones(2, 4)), TraceOptions("meta"))

    assert trace.seen[model[1]].time_ns > trace.seen[model[0]].time_ns


@pytest.mark.parametrize("options", [*ANYWHERE, TraceOptions("gpu", execution_times=True)])
def test_nothing_is_changed(options: TraceOptions) -> None:
    torch.manual_seed(3)
    model = Stack()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    objects = dict(model.named_parameters())
    random = torch.get_rng_state()

    trace_step(model, step_of(model, torch.arange(12)), options)

    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter is objects[name] for name, parameter in model.named_parameters())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_operations_count_by_the_roofline() -> None:
    rates = Rates(flops=1e9, bytes=1e9)
    assert rates.time_ns(flops=2000, size=10) == 2000
    assert rates.time_ns(flops=10, size=3000) == 3000

    small, large = nn.Linear(64, 64), nn.Linear(64, 64 * 64)
    model = nn.Sequential(small, large)
    trace = trace_step(model, step_of(model, torch.ones(512, 64)), TraceOptions("meta"))

    ratio = trace.seen[large].time_ns / trace.seen[small].time_ns
    assert 32 <= ratio <= 128, "64 times the operations, less than that in bytes"


def test_memory_is_what_autograd_keeps() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh(), nn.Flatten())
    inputs = torch.ones(4, WIDTH)

    trace = trace_step(model, step_of(model, inputs), TraceOptions("cpu", memory_usage=True))

    saved = {type(module).__name__: seen.saved_bytes for module, seen in trace.seen.items()}
    assert saved["Linear"] == inputs.nbytes, "its input; the weight is a parameter"
    assert saved["Tanh"] == inputs.nbytes, "its output"
    assert saved["Flatten"] == 0


def test_measured_times_are_alike_for_modules_of_one_kind() -> None:
    model, trace = traced_stack(TraceOptions("cpu", execution_times=True))
    seen = rows(model, trace)

    assert seen["blocks.0"].time_ns == seen["blocks.1"].time_ns > 0
    assert seen["blocks.0.fc"].time_ns == seen["blocks.1.fc"].time_ns
    for module in seen.values():
        assert len(str(module.time_ns).rstrip("0")) <= 3, "three digits"


def test_times_of_shapes_are_refused_aloud(capfd: pytest.CaptureFixture[str]) -> None:
    _, trace = traced_stack(TraceOptions("meta", execution_times=True))

    assert not trace.empty
    assert "trace_execution_times is without effect" in capfd.readouterr().err


def test_module_with_several_parents_goes_to_the_one_that_runs_it() -> None:
    class Keeper(nn.Module):
        def __init__(self, kept: nn.Module) -> None:
            super().__init__()
            self.kept = kept
            self.own = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.own(x)

    class User(Keeper):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.kept(self.own(x))

    shared = nn.Linear(WIDTH, WIDTH)
    model = nn.Sequential(Keeper(shared), User(shared))
    trace = trace_step(model, step_of(model, torch.ones(2, WIDTH)), TraceOptions("cpu"))

    tree = module_tree(model, trace, no_pins)

    # The keeper runs alone on 0; the user, with the shared module below it, on 1.
    assignment = partition(tree, 2, "compat", memory_weight=1.0).assignment
    assert assignment["0.kept"] == assignment["1"] == 1
    assert len(tree) == len(list(model.modules()))


def test_tree_of_a_model_without_a_trace_is_whole() -> None:
    model = Stack()

    tree = module_tree(model, Trace(), no_pins)

    partition(tree, 2, "compat").assignment.check_fits(tree, 2)
    assert len(tree) == len(list(model.modules()))


def test_recomputed_modules_keep_their_inputs_and_run_once_more() -> None:
    model = nn.Sequential(*(Block() for _ in range(12)))
    trace = trace_step(model, step_of(model, torch.ones(4096, WIDTH)), TraceOptions("cpu"))

    def on_first(memory_weight: float, *regions: list[nn.Module]) -> int:
        """Number of blocks on the first of two partitions."""
        tree = module_tree(model, trace, no_pins, regions)
        chosen = partition(tree, 2, "compat", memory_weight=memory_weight)
        return sum(chosen.assignment[str(number)] == 0 for number in range(12))

    assert on_first(1.0) == on_first(0.0) == 6
    assert on_first(1.0, *([block] for block in model[:8])) == 8, "each keeps one tensor, of two"
    assert on_first(1.0, list(model[:6])) == 9, "they keep one together"
    assert on_first(0.0, list(model[:6])) == 5, "each takes as long as four forwards, not three"
    size = 4096 * WIDTH * 4
    assert recompute_bytes(trace, [[model[0]], [model[1], model[2]]]) == 4 * size
    assert recompute_bytes(trace, []) == 0


def test_recomputation_is_predicted_in_the_first_part_of_the_backward() -> None:
    model = nn.Sequential(*(Block() for _ in range(16)))
    trace = trace_step(model, step_of(model, torch.ones(4096, WIDTH)), TraceOptions("cpu"))

    def step_ms(pipeline: str, *regions: list[nn.Module]) -> float:
        tree = module_tree(model, trace, no_pins, regions)
        chosen = partition(tree, 4, memory_weight=0.0, microbatches=8, pipeline=pipeline)
        found = re.search(r"predicted step ([\d.]+) ms", chosen.summary)
        assert found is not None
        return float(found[1])

    each = [[block] for block in model]
    assert step_ms("interleaved", *each) / step_ms("interleaved") == pytest.approx(4 / 3, rel=0.05)
    assert step_ms("zero_bubble", *each) < 0.9 * step_ms("interleaved", *each)
    assert step_ms("zero_bubble") < 0.85 * step_ms("interleaved")


def transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), torch.ones(2, 16, 32)


def resnet() -> tuple[nn.Module, torch.Tensor]:
    models = pytest.importorskip("torchvision.models")
    return models.resnet18(), torch.ones(2, 3, 32, 32)


def vision_transformer() -> tuple[nn.Module, torch.Tensor]:
    models = pytest.importorskip("torchvision.models")
    model = models.VisionTransformer(32, 8, num_layers=4, num_heads=2, hidden_dim=32, mlp_dim=64)
    return model, torch.ones(2, 3, 32, 32)


@pytest.mark.parametrize("make", [transformer, resnet, vision_transformer])
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("partitions", [2, 4])
def test_real_models_are_partitioned_evenly(
    make: Callable[[], tuple[nn.Module, torch.Tensor]], device: str, partitions: int
) -> None:
    model, inputs = make()
    trace = trace_step(model, step_of(model, inputs), TraceOptions(device))
    tree = module_tree(model, trace, no_pins)

    chosen = partition(tree, partitions, memory_weight=0.5, microbatches=4)

    chosen.assignment.check_fits(tree, partitions)
    assert set(chosen.assignment.partition_of.values()) == set(range(partitions))
    assert chosen.summary.startswith("Partition chosen: ")
    gap = re.search(r"heaviest partition ([\d.]+) of the contiguous optimum", chosen.summary)
    assert gap is not None
    assert float(gap[1]) <= 1.05
    assert "% of the time" in chosen.assignment.balance_line(tree)


def test_attention_counts_its_operations() -> None:
    class Attention(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    def time_of(length: int) -> int:
        model = nn.Sequential(Attention())
        run = step_of(model, torch.empty(1, 2, length, 64))
        return trace_step(model, run, TraceOptions("meta")).seen[model[0]].time_ns

    assert 3 < time_of(2048) / time_of(1024) < 5, "quadratic in the length"


def test_error_of_the_script_is_its_own() -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ArithmeticError("broken on purpose")

    model = nn.Sequential(Broken())

    with pytest.raises(ArithmeticError, match="on purpose"):
        trace_step(model, step_of(model, torch.ones(1)), TraceOptions("cpu"))
    assert not model[0]._forward_hooks

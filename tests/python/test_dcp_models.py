# SPDX-License-Identifier: Apache-2.0
"""``smp.save_dcp`` and ``smp.load_dcp`` in one process: which optimizers and names they take."""

from __future__ import annotations

import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy
import pytest
import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed.checkpoint as dcp
from smdistributed.modelparallel.torch._checkpoint.dcp_content import DcpContent
from smdistributed.modelparallel.torch._checkpoint.whole_entries import WholeEntries
from smdistributed.modelparallel.torch._files.dcp_entries import DcpEntries
from smdistributed.modelparallel.torch.exceptions import (
    SMPCheckpointError,
    SMPUnsupportedError,
    SMPValidationError,
)
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

BATCH = torch.arange(16.0).reshape(4, 4) / 16

pytestmark = pytest.mark.usefixtures("smp")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.middle, self.last = (nn.Linear(4, 4) for _ in range(3))
        self.last.weight = self.first.weight
        self.middle.weight.requires_grad_(False)
        self.register_buffer("scale", torch.tensor([2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.middle(self.first(x)).relu()) * self.scale


def groups(module: nn.Module) -> list[dict[str, Any]]:
    weights = [p for p in module.parameters() if p.dim() == 2 and p.requires_grad]
    return [
        {"params": weights, "lr": 0.1},
        {"params": [p for p in module.parameters() if p.dim() == 1]},
    ]


@smp.step
def train_step(model: Any, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).square().mean()
    model.backward(loss)
    return loss


def trained(make: Any, steps: int = 2) -> tuple[Any, Any]:
    smp.shutdown()
    smp.init({"microbatches": 2})
    model = smp.DistributedModel(Tied())
    optimizer = smp.DistributedOptimizer(make(groups(model.get_module())))
    for _ in range(steps):
        step(model, optimizer)
    return model, optimizer


def step(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    train_step(model, BATCH)
    optimizer.step()


def plain_step(module: nn.Module, optimizer: Any) -> None:
    optimizer.zero_grad()
    for rows in BATCH.chunk(2):  # two microbatches
        (module(rows).square().mean() / 2).backward()
    optimizer.step()


OPTIMIZERS = {
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=0.01),
    "amsgrad": lambda groups: torch.optim.Adam(groups, lr=0.01, amsgrad=True),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.01, momentum=0.9),
    "stateless": lambda groups: torch.optim.SGD(groups, lr=0.01),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=0.01, centered=True),
}


def test_frozen_parameters_have_their_values_beside_masters(tmp_path: Path) -> None:
    smp.shutdown()
    smp.init({"microbatches": 2, "bf16": True})
    model = smp.DistributedModel(Tied())
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(groups(model.get_module()), lr=0.01))
    step(model, optimizer)
    smp.save_dcp(tmp_path, model, optimizer)
    plain = Tied()

    entries = DcpEntries(tmp_path)

    assert torch.equal(entries["model.middle.weight"], plain.middle.weight.bfloat16())
    assert entries["model.first.weight"].dtype == torch.float32
    assert not torch.equal(entries["model.first.weight"], plain.first.weight)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_plain_torch_goes_on_from_ours_and_we_from_its(make: Any, tmp_path: Path) -> None:
    model, optimizer = trained(make)
    smp.save_dcp(tmp_path / "ours", model, optimizer, optimizer_key="optim")
    step(model, optimizer)
    wanted = {name: value.clone() for name, value in model.state_dict().items()}

    module = Tied()
    with torch.no_grad():
        module.first.weight.zero_()
    theirs = make(groups(module))
    of_model, of_optimizer = get_state_dict(module, theirs)
    dcp.load({"model": of_model, "optim": of_optimizer}, checkpoint_id=tmp_path / "ours")
    set_state_dict(module, theirs, model_state_dict=of_model, optim_state_dict=of_optimizer)
    of_model, of_optimizer = get_state_dict(module, theirs)
    dcp.save({"model": of_model, "optim": of_optimizer}, checkpoint_id=tmp_path / "theirs")
    plain_step(module, theirs)

    for name, value in module.state_dict().items():
        assert torch.equal(value, wanted[name]), name
    again, optimizer = trained(make, 1)
    smp.load_dcp(tmp_path / "theirs", again, optimizer)
    step(again, optimizer)
    for name, value in again.state_dict().items():
        assert torch.equal(value, wanted[name]), name


def test_settings_are_those_that_were_saved_and_more_stay(tmp_path: Path) -> None:
    model, optimizer = trained(OPTIMIZERS["adamw"])
    smp.save_dcp(tmp_path, model, optimizer)
    again, other = trained(lambda groups: torch.optim.AdamW(groups, lr=7.0, weight_decay=0.5), 0)
    for group in other.param_groups:
        group["initial_lr"] = 3.0

    smp.load_dcp(tmp_path, again, other)

    told = [
        (group["lr"], group["weight_decay"], group["initial_lr"]) for group in other.param_groups
    ]
    assert told == [(0.1, 0.01, 3.0), (0.01, 0.01, 3.0)]


def test_the_model_alone_is_loaded_and_saved(tmp_path: Path) -> None:
    model, _ = trained(OPTIMIZERS["adamw"])
    smp.save_dcp(tmp_path, model)
    wanted = model.state_dict()
    again, optimizer = trained(OPTIMIZERS["adamw"], 0)

    smp.load_dcp(tmp_path, again)

    for name, value in again.state_dict().items():
        assert torch.equal(value, wanted[name]), name
    with pytest.raises(SMPCheckpointError, match="no state of an optimizer"):
        smp.load_dcp(tmp_path, again, optimizer)


def test_what_is_in_several_places_is_asked_for(tmp_path: Path) -> None:
    model, _ = trained(OPTIMIZERS["adamw"])
    plain = dict(model.state_dict())
    state = {"model": plain, "ema": {n: v + 1 for n, v in plain.items()}}
    dcp.save(state, checkpoint_id=tmp_path)

    with pytest.raises(SMPCheckpointError, match=r"several places: 'ema.', 'model.'; say which"):
        smp.load_dcp(tmp_path, model)
    smp.load_dcp(tmp_path, model, model_key="ema")
    assert torch.equal(model.state_dict()["scale"], torch.tensor([3.0]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lr": 0.3}, r"other settings of the optimizer for last.bias than for first.bias"),
        ({"middle.bias": "unknown.bias"}, r"is of other parameters: 4 in groups of \[1, 3\]"),
    ],
)
def test_flat_groups_that_do_not_fit_are_named(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    model, optimizer = trained(OPTIMIZERS["stateless"])
    smp.save_dcp(tmp_path / "a", model, optimizer)
    names = ["first.weight", "first.bias", "middle.bias", "last.bias"]
    settings = {key: value for key, value in optimizer.param_groups[0].items() if key != "params"}
    flat = {f"param_groups.{change.get(name, name)}.{key}": value
            for name in names for key, value in settings.items()}  # fmt: skip
    if "lr" in change:
        flat["param_groups.last.bias.lr"] = change["lr"]
    dcp.save({"model": dict(model.state_dict()), "optim": flat}, checkpoint_id=tmp_path / "b")

    with pytest.raises(SMPCheckpointError, match=said):
        smp.load_dcp(tmp_path / "b", model, optimizer)


def test_one_value_is_there_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[torch.Tensor]] = []
    take, read = DcpContent.take, DcpEntries.__getitem__
    reads: Counter[str] = Counter()

    def taken(content: DcpContent, name: str) -> Any:
        assert not any(one() is not None for one in alive)
        value = take(content, name)
        assert value is not None
        alive.append(weakref.ref(value.untyped_storage()))
        return value

    def counted(entries: DcpEntries, name: str) -> Any:
        reads[name] += 1
        return read(entries, name)

    model, optimizer = trained(OPTIMIZERS["adamw"])
    monkeypatch.setattr(WholeEntries, "value", lambda own, name: value_of(own, name).clone())
    monkeypatch.setattr(DcpContent, "take", taken)
    monkeypatch.setattr(DcpEntries, "__getitem__", counted)
    smp.save_dcp(tmp_path, model, optimizer)
    smp.load_dcp(tmp_path, model, optimizer)

    assert len(alive) > 10
    assert set(reads.values()) == {1}
    assert sum(name.endswith("exp_avg") for name in reads) == 4


value_of = WholeEntries.value


def test_optimizers_of_several_classes_go_on_together(tmp_path: Path) -> None:
    def both() -> tuple[Any, list[Any]]:
        smp.shutdown()
        smp.init({"microbatches": 2})
        model = smp.DistributedModel(Tied())
        weights, biases = (group["params"] for group in groups(model.get_module()))
        return model, [
            smp.DistributedOptimizer(torch.optim.SGD(weights, lr=0.1, momentum=0.9)),
            smp.DistributedOptimizer(torch.optim.AdamW(biases, lr=numpy.float64(0.01))),
        ]

    def steps(model: Any, optimizers: list[Any]) -> dict[str, torch.Tensor]:
        for optimizer in optimizers:
            optimizer.zero_grad()
        train_step(model, BATCH)
        for optimizer in optimizers:
            optimizer.step()
        return {name: value.clone() for name, value in model.state_dict().items()}

    model, optimizers = both()
    steps(model, optimizers)
    smp.save_dcp(tmp_path, model, optimizers[0])
    wanted = steps(model, optimizers)

    model, optimizers = both()
    smp.load_dcp(tmp_path, model, optimizers[1])

    for name, value in steps(model, optimizers).items():
        assert torch.equal(value, wanted[name]), name


class Scalars(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(2.0))
        self.b = nn.Parameter(torch.ones(3, dtype=torch.complex64))
        self.c = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.a * self.b.abs().sum() * self.c.sum()


@pytest.mark.parametrize("settings", [{}, {"bf16": True}])
def test_parameters_without_a_dimension_and_of_several_types(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    def made() -> tuple[Any, Any]:
        smp.shutdown()
        smp.init({"microbatches": 2, **settings})
        model = smp.DistributedModel(Scalars())
        return model, smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=0.1))

    model, optimizer = made()
    step(model, optimizer)
    smp.save_dcp(tmp_path, model, optimizer)
    step(model, optimizer)
    wanted = {name: value.clone() for name, value in model.state_dict().items()}
    model, optimizer = made()
    smp.load_dcp(tmp_path, model, optimizer)
    step(model, optimizer)

    for name, value in model.state_dict().items():
        assert torch.equal(value, wanted[name]), name


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"first.weight": {"exp_avg": torch.ones(2, 8)}}, r"exp_avg of parameter first.weight has"),
        ({"nobody": {"step": torch.tensor(1.0)}}, r"nobody is no parameter of the model in it"),
    ],
)
def test_state_that_fits_no_parameter_is_refused(
    tmp_path: Path, entries: dict[str, Any], said: str
) -> None:
    model, optimizer = trained(OPTIMIZERS["adamw"])
    groups = [{**group, "params": ["first.weight"]} for group in optimizer.param_groups]
    state = {"model": dict(model.state_dict()), "optim": {"state": entries, "param_groups": groups}}
    dcp.save(state, checkpoint_id=tmp_path)

    with pytest.raises(SMPCheckpointError, match=said):
        smp.load_dcp(tmp_path, model, optimizer)


class Remembers(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["history"] = [torch.ones(1)]
        return super().step(closure)


def test_state_in_lists_is_refused_by_name(tmp_path: Path) -> None:
    model, optimizer = trained(lambda groups: Remembers(groups, lr=0.01))
    with pytest.raises(SMPUnsupportedError, match="keeps a list as history for parameter first"):
        smp.save_dcp(tmp_path, model, optimizer)


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    model, optimizer = trained(OPTIMIZERS["adamw"])
    (tmp_path / "step_1").mkdir()
    with pytest.raises(SMPCheckpointError, match=r"has step_1, which is no file of a checkpoint"):
        smp.save_dcp(tmp_path, model, optimizer)
    assert [path.name for path in tmp_path.iterdir()] == ["step_1"]


def test_a_checkpoint_whose_save_was_killed_at_its_end_is_found(tmp_path: Path) -> None:
    model, optimizer = trained(OPTIMIZERS["adamw"])
    smp.save_dcp(tmp_path / "a", model, optimizer)
    (tmp_path / "a").rename(tmp_path / ".a.old")

    smp.load_dcp(tmp_path / "a", model, optimizer)


def test_state_of_other_shapes_is_refused_by_name(tmp_path: Path) -> None:
    model, optimizer = trained(lambda groups: torch.optim.Adafactor(groups, lr=0.01))

    with pytest.raises(SMPUnsupportedError, match=r"keeps row_var of shape .* for parameter first"):
        smp.save_dcp(tmp_path, model, optimizer)
    assert not list(tmp_path.iterdir())


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    model, optimizer = trained(OPTIMIZERS["adamw"], 0)
    with pytest.raises(SMPValidationError, match=r"save_dcp got Linear; expected a smp\.D"):
        smp.save_dcp(tmp_path, nn.Linear(1, 1))  # type: ignore[arg-type]
    with pytest.raises(SMPValidationError, match=r"load_dcp got AdamW; expected a smp\.D"):
        smp.load_dcp(tmp_path, model, optimizer.optimizer)
    with pytest.raises(SMPCheckpointError, match=r"there is no checkpoint of torch\.dist"):
        smp.load_dcp(tmp_path, model)


def test_nothing_that_a_file_holds_is_run(tmp_path: Path) -> None:
    model, optimizer = trained(OPTIMIZERS["stateless"])
    evil = {
        "model": dict(model.state_dict()),
        "optim": {"param_groups": [{"lr": Evil(), "params": []}]},
    }
    dcp.save(evil, checkpoint_id=tmp_path)

    with pytest.raises(
        SMPCheckpointError,
        match=r"cannot read optim\.param_groups\.0\.lr in .* it holds .*_ran, which could run",
    ):
        smp.load_dcp(tmp_path, model, optimizer)
    assert Evil.runs == 0


class Evil:
    runs = 0

    def __reduce__(self) -> Any:
        return (_ran, ())


def _ran() -> None:
    Evil.runs += 1

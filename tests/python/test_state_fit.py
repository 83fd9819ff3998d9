# SPDX-License-Identifier: Apache-2.0
"""Saved state of another model or another optimizer is refused, and the first difference named."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from torch import nn

WAYS = {"plain": {}, "16-bit": {"bf16": True}}
ADVICE = "leave its state out with load_optimizer=False of smp.resume_from_checkpoint"


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.delenv("SM_HP_MP_PARAMETERS", raising=False)
    smp.init(WAYS[request.param])
    yield request.param
    smp.shutdown()


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def plain_sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.1)


def split_adamw(parameters: Any) -> torch.optim.Optimizer:
    first, *others = parameters
    return torch.optim.AdamW([{"params": [first]}, {"params": others}], lr=0.1)


Maker = Callable[[Any], torch.optim.Optimizer]


def made(maker: Maker, width: int = 3, layers: int = 2) -> tuple[Any, Any]:
    torch.manual_seed(3)
    sizes = [4, *[width] * layers]
    parts = [nn.Linear(*both) for both in itertools.pairwise(sizes)]
    model = smp.DistributedModel(nn.Sequential(*parts))
    return model, smp.DistributedOptimizer(maker(model.parameters()))


def train(model: Any, optimizer: Any) -> None:
    @smp.step
    def step(x: torch.Tensor) -> None:
        model.backward(model(x).float().square().mean())

    optimizer.zero_grad()
    step(torch.ones(2, 4, dtype=next(model.parameters()).dtype))
    optimizer.step()


def saved_by(maker: Maker, folder: Path) -> dict[str, Any]:
    """A checkpoint under the folder; the state dict of its optimizer."""
    model, optimizer = made(maker)
    train(model, optimizer)
    smp.save_checkpoint(str(folder), "a")
    whole: dict[str, Any] = optimizer.state_dict()
    return whole


def again(way: str) -> None:
    """Another job in this process."""
    smp.shutdown()
    smp.init(WAYS[way])


def refused(act: Callable[[], Any]) -> str:
    with pytest.raises(SMPCheckpointError) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "lacks"),
    [
        (sgd, adamw, "its groups have no betas and eps"),
        (plain_sgd, adamw, "its groups have no betas and eps"),
        (adamw, sgd, "its groups have no dampening"),
    ],
)
@pytest.mark.parametrize("stepped", [False, True])
def test_state_of_another_class_of_optimizer_names_both(
    way: str, tmp_path: Path, before: Maker, after: Maker, lacks: str, stepped: bool
) -> None:
    state = saved_by(before, tmp_path)
    again(way)
    model, optimizer = made(after)
    if stepped:
        train(model, optimizer)
    kinds = [maker([nn.Parameter(torch.ones(1))]).__class__.__name__ for maker in (before, after)]

    error = refused(lambda: smp.resume_from_checkpoint(str(tmp_path)))

    assert f"the optimizer state in {tmp_path}/a_partial is of {kinds[0]}, and" in error
    assert f"the optimizer here is {kinds[1]}: {lacks}; make an optimizer of the class" in error
    assert error.endswith(ADVICE)
    direct = refused(lambda: optimizer.load_state_dict(state))
    assert f"the optimizer here is {kinds[1]}: {lacks}" in direct
    smp.resume_from_checkpoint(str(tmp_path), load_optimizer=False)


def test_files_that_do_not_name_the_optimizer_are_judged_by_what_they_hold(
    way: str, tmp_path: Path
) -> None:
    saved_by(sgd, tmp_path)
    forget_kind(tmp_path)
    again(way)
    made(adamw)

    error = refused(lambda: smp.resume_from_checkpoint(str(tmp_path)))

    assert "is of another optimizer, and the optimizer here is AdamW: its groups have no" in error


def test_files_that_do_not_name_the_optimizer_are_loaded_where_they_fit(
    way: str, tmp_path: Path
) -> None:
    saved_by(adamw, tmp_path)
    forget_kind(tmp_path)
    again(way)
    _, optimizer = made(adamw)

    smp.resume_from_checkpoint(str(tmp_path))

    assert optimizer.state_dict()["state"][0]["step"] == 1


def forget_kind(folder: Path) -> None:
    """As an older version wrote it."""
    (file,) = (folder / "a_partial").glob("optimizer_*.pt")
    part = torch.load(file, weights_only=False)
    assert "SGD" in str(part.get("_smp_optimizer", part.get("optimizer"))) or "AdamW" in str(part)
    part.pop("_smp_optimizer", None), part.pop("optimizer", None)
    torch.save(part, file)
    (folder / "a_partial" / "manifest.json").unlink()


def test_adam_goes_on_as_adamw(way: str, tmp_path: Path) -> None:
    saved_by(lambda parameters: torch.optim.Adam(parameters, lr=0.5), tmp_path)
    again(way)
    model, optimizer = made(adamw)

    smp.resume_from_checkpoint(str(tmp_path))
    train(model, optimizer)

    assert optimizer.state_dict()["state"][0]["step"] == 2


def test_another_number_of_groups_names_the_first_difference(way: str, tmp_path: Path) -> None:
    state = saved_by(adamw, tmp_path)
    again(way)
    _, optimizer = made(split_adamw)

    error = refused(lambda: smp.resume_from_checkpoint(str(tmp_path)))

    assert f"the optimizer state in {tmp_path}/a_partial is of other parameters: 4 in" in error
    assert "in groups of [4], here 4 in groups of [1, 3]; number 1 is 0.bias" in error
    assert "0.bias of shape (3,) in group 0 there and 0.bias of shape (3,) in group 1 here" in error
    assert error.endswith(ADVICE)
    direct = refused(lambda: optimizer.load_state_dict(state))
    assert "in the state dict is of other parameters: 4 in groups of [4], here 4 in" in direct


@pytest.mark.parametrize("strict", [True, False])
def test_other_shapes_name_the_first_parameter_and_both(
    way: str, tmp_path: Path, strict: bool
) -> None:
    state = saved_by(adamw, tmp_path)
    again(way)
    model, optimizer = made(adamw, width=5)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    error = refused(lambda: smp.resume_from_checkpoint(str(tmp_path), strict=strict))

    assert error == (
        f"{tmp_path}/a_partial is of another model: parameter 0.weight has shape (3, 4) there and "
        "(5, 4) here; build the model as in the job that saved"
    )
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    direct = refused(lambda: optimizer.load_state_dict(state))
    assert "of parameter 0.weight has shape (3, 4) there, and the parameter (5, 4) here" in direct
    whole = {name: torch.ones(3, 4) for name in ("0.weight",)}
    assert "the state dict is of another model: parameter 0.weight has shape (3, 4) there" in (
        refused(lambda: model.load_state_dict(whole, strict=False))
    )


@pytest.mark.parametrize(("layers", "first"), [
    (3, "parameter 2.weight is absent there and has shape (3, 3) here; missing ['2.bias', '2.weig"),
    (1, "parameter 1.weight has shape (3, 3) there and is absent here; missing nothing, unknown ["),
])  # fmt: skip
def test_other_layers_name_the_first_one(way: str, tmp_path: Path, layers: int, first: str) -> None:
    saved_by(adamw, tmp_path)
    again(way)
    made(adamw, layers=layers)

    error = refused(lambda: smp.resume_from_checkpoint(str(tmp_path)))

    assert f"{tmp_path}/a_partial is of another model: {first}" in error
    assert "build the model as in the job that saved, or take what fits with strict=False" in error


def test_what_fits_of_another_model_is_taken_when_asked(way: str, tmp_path: Path) -> None:
    model, _ = made(adamw)
    smp.save_checkpoint(str(tmp_path), "whole", partial=False)
    kept = model.state_dict()["0.weight"].clone()
    again(way)
    model, _ = made(adamw, layers=3)
    whole = {"path": str(tmp_path), "partial": False, "load_optimizer": False}

    error = refused(lambda: smp.resume_from_checkpoint(**whole))
    smp.resume_from_checkpoint(**whole, strict=False)

    assert f"{tmp_path}/whole is of another model: parameter 2.weight is absent there" in error
    assert torch.equal(model.state_dict()["0.weight"], kept)


def test_what_is_no_state_of_an_optimizer_is_named(way: str) -> None:
    model, optimizer = made(adamw)

    error = refused(lambda: optimizer.load_state_dict(model.state_dict()))

    assert "the state dict is no state of an optimizer: it has ['0.weight', '0.bias'" in error
    assert "expected state and param_groups, as optimizer.state_dict() returns them" in error


def test_16_bit_state_in_a_job_without_it_is_compared_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SM_HP_MP_PARAMETERS", raising=False)
    smp.init(WAYS["16-bit"])
    saved_by(adamw, tmp_path)
    try:
        for other in (split_adamw, sgd, lambda some: adamw(list(some)[1:])):
            again("plain")
            made(other)

            error = refused(lambda: smp.resume_from_checkpoint(str(tmp_path)))

            assert f"the optimizer state in {tmp_path}/a_partial is of" in error
    finally:
        smp.shutdown()

# SPDX-License-Identifier: Apache-2.0
"""Training loops that would learn nothing, or something else, in one process."""

import copy
import pickle
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import smdistributed.modelparallel.torch as library
import torch
from smdistributed.modelparallel.torch.exceptions import (
    SMPStepError,
    SMPUnsupportedError,
    SMPValidationError,
)
from torch import nn
from torch.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)

Train = Callable[..., None]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """`job(bf16=True)`: the library, initialised with these settings."""
    monkeypatch.delenv("SM_HP_MP_PARAMETERS", raising=False)
    monkeypatch.setenv("SMP_PROGRESS", "off")

    def start(**config: Any) -> ModuleType:
        library.init(config)
        return library

    yield start
    library.shutdown()


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def train(
    smp: ModuleType,
    model: nn.Module,
    optimizer: Any,
    steps: int = 3,
    backward: Callable[[torch.Tensor], Any] | None = None,
) -> None:
    @smp.step
    def step(batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(batch).pow(2).mean()
        (backward or model.backward)(loss)  # type: ignore[operator]
        return loss

    for _ in range(steps):
        optimizer.zero_grad()
        step(torch.ones(4, 4))
        optimizer.step()


@pytest.mark.parametrize("setting", ["bf16", "fp16"])
def test_an_optimizer_that_is_not_wrapped_is_refused_where_it_would_update_copies(
    job: Callable[..., ModuleType], setting: str
) -> None:
    smp = job(**{setting: True})
    model = smp.DistributedModel(network())

    with pytest.raises(
        SMPStepError, match=rf"SGD\.step\(\) .* with {setting} the model's"
    ) as raised:
        train(smp, model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert "optimizer = smp.DistributedOptimizer(SGD(model.parameters(), ...))" in str(raised.value)


def test_optimizers_of_other_modules_are_nobodys_business(job: Callable[..., ModuleType]) -> None:
    smp = job(bf16=True)
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    train(smp, model, optimizer)
    other = nn.Linear(2, 2)
    other(torch.ones(1, 2)).sum().backward()

    torch.optim.SGD(other.parameters(), lr=0.1).step()


def test_a_job_as_it_should_be_hears_nothing(
    job: Callable[..., ModuleType], capfd: pytest.CaptureFixture[str]
) -> None:
    smp = job(bf16=True)
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    train(smp, model, optimizer)
    model.eval()
    with torch.no_grad():
        train(smp, model, optimizer, 1, backward=lambda _: None)

    assert "WARNING" not in capfd.readouterr().err


def test_a_plain_backward_of_one_microbatch_is_the_same(job: Callable[..., ModuleType]) -> None:
    smp = job(microbatches=1)
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    train(smp, model, optimizer, backward=lambda loss: loss.backward())


def test_a_plain_backward_inside_a_step_is_refused(job: Callable[..., ModuleType]) -> None:
    smp = job(microbatches=4)
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    with pytest.raises(SMPStepError, match=r"call model\.backward\(loss\) in its place"):
        train(smp, model, optimizer, backward=lambda loss: loss.backward())

    weight = torch.ones(2, requires_grad=True)
    weight.sum().backward()  # outside it is torch's again
    assert torch.equal(weight.grad, torch.ones(2))  # type: ignore[arg-type]


class _Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(value)
        return value * 3

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            again = ctx.saved_tensors[0].detach().requires_grad_()
            (again * 3).backward(gradient)  # as checkpoints of older libraries do
        assert again.grad is not None
        return again.grad


def test_a_backward_within_a_backward_is_left_alone(
    job: Callable[..., ModuleType],
) -> None:
    smp = job()
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    train(smp, model, optimizer, backward=lambda loss: model.backward(_Inner.apply(loss)))


@pytest.mark.parametrize(
    ("mistake", "warning"),
    [
        ("rate", "the learning rate of SGD is 0 in all groups"),
        ("no backward", "a step of the model in training mode that ran no backward"),
        ("half", "no optimizer that has stepped so far has 2 parameters (2.weight, 2.bias)"),
        ("of another", "an optimizer has 4 parameters that are not the model's, and none has 4"),
        ("no optimizer", "there is no optimizer: with bf16 only smp.DistributedOptimizer updates"),
    ],
)
def test_what_learns_nothing_is_said_once_within_three_steps(
    job: Callable[..., ModuleType],
    capfd: pytest.CaptureFixture[str],
    mistake: str,
    warning: str,
) -> None:
    smp = job(bf16=mistake == "no optimizer")
    model = smp.DistributedModel(network())
    parameters = list((network() if mistake == "of another" else model).parameters())
    if mistake == "half":
        parameters = parameters[:2]
    optimizer: Any = torch.optim.SGD(parameters, lr=0.0 if mistake == "rate" else 0.1)
    if mistake == "no optimizer":
        optimizer = nn.Module()
        optimizer.step = lambda: None
    elif mistake != "of another":
        optimizer = smp.DistributedOptimizer(optimizer)

    train(
        smp,
        model,
        optimizer,
        steps=4,
        backward=(lambda _: None) if mistake == "no backward" else None,
    )

    assert capfd.readouterr().err.count(warning) == 1


def test_a_warm_up_may_begin_at_0(
    job: Callable[..., ModuleType], capfd: pytest.CaptureFixture[str]
) -> None:
    smp = job()
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer.optimizer, lambda step: step / 10)

    for _ in range(3):
        train(smp, model, optimizer, 1)
        schedule.step()

    assert "learning rate" not in capfd.readouterr().err


def step_function(
    smp: ModuleType, model: nn.Module, before: Callable[[], Any] = lambda: None
) -> Callable[[torch.Tensor], Any]:
    @smp.step
    def step(batch: torch.Tensor) -> torch.Tensor:
        before()
        loss: torch.Tensor = model(batch).pow(2).mean()
        model.backward(loss)  # type: ignore[operator]
        return loss

    return step  # type: ignore[no-any-return]


def test_what_belongs_before_or_after_a_step_is_refused_inside(
    job: Callable[..., ModuleType],
) -> None:
    smp = job(microbatches=2)
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    with pytest.raises(SMPStepError, match=r"SGD\.zero_grad\(\) was called inside a function"):
        step_function(smp, model, optimizer.zero_grad)(torch.ones(4, 4))
    with pytest.raises(SMPStepError, match=r"SGD\.step\(\) was called inside a function"):
        step_function(smp, model, optimizer.step)(torch.ones(4, 4))
    train(smp, model, optimizer)


@pytest.mark.parametrize("settings", [{}, {"bf16": True}], ids=["plain", "masters"])
def test_gradients_that_are_never_cleared_are_told_once(
    job: Callable[..., ModuleType], capfd: pytest.CaptureFixture[str], settings: dict[str, Any]
) -> None:
    smp = job(**settings)
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    train(smp, model, optimizer)
    assert "are still there" not in capfd.readouterr().err

    step = step_function(smp, model)
    for _ in range(4):
        step(torch.ones(4, 4))
        optimizer.step()

    assert capfd.readouterr().err.count("the last update used are still there") == 1


def test_training_in_evaluation_mode_is_told_where_it_is_new(
    job: Callable[..., ModuleType], capfd: pytest.CaptureFixture[str]
) -> None:
    smp = job()
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    model.eval()
    train(smp, model, optimizer)
    assert "evaluation mode" not in capfd.readouterr().err
    model.train()
    train(smp, model, optimizer)
    model.eval()
    train(smp, model, optimizer)

    assert capfd.readouterr().err.count("while the model is in evaluation mode") == 1


ALREADY_IMPORTED = {
    "clip_grad_norm_": clip_grad_norm_,
    "clip_grad_value_": clip_grad_value_,
    "clip_grads_with_norm_": clip_grads_with_norm_,
    "get_total_norm": get_total_norm,
}


def clip_by(name: str, parameters: Any) -> None:
    function: Callable[..., Any] = ALREADY_IMPORTED[name]
    given = list(parameters)
    if name == "get_total_norm":
        function([p.grad for p in given if p.grad is not None])
    else:
        function(given, 1.0, *([torch.tensor(2.0)] if "with_norm" in name else []))


@pytest.mark.parametrize("name", ALREADY_IMPORTED)
def test_torchs_clipping_is_refused_where_masters_are_stepped(
    job: Callable[..., ModuleType], name: str
) -> None:
    smp = job(bf16=True)
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    train(smp, model, optimizer)
    other = network()
    other(torch.ones(1, 4)).sum().backward()

    error, named = SMPUnsupportedError, name
    if name == "get_total_norm":  # its caller reads gradients first
        error, named = SMPStepError, "gradient of parameter 0.weight"
    with pytest.raises(error, match=rf"{named} .* optimizer\.clip_master_"):
        clip_by(name, model.parameters())
    clip_by(name, other.parameters())  # nobody's business
    step_function(smp, model)(torch.ones(4, 4))
    clip_by(name, [p for group in optimizer.param_groups for p in group["params"]])
    library.shutdown()
    clip_by(name, other.parameters())  # as ever, after the job


def test_values_of_masters_gradients_are_clipped(job: Callable[..., ModuleType]) -> None:
    smp = job(bf16=True)
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    step_function(smp, model)(100 * torch.ones(4, 4))

    optimizer.clip_master_values(0.25)

    masters = [p for group in optimizer.param_groups for p in group["params"]]
    assert max(float(p.grad.abs().max()) for p in masters) == 0.25


def test_the_optimizer_inside_is_not_stepped_in_place_of_its_wrapper(
    job: Callable[..., ModuleType],
) -> None:
    smp = job(bf16=True)
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    step_function(smp, model)(torch.ones(4, 4))

    with pytest.raises(SMPStepError, match=r"Call step\(\) of what smp\.DistributedOptimizer"):
        optimizer.optimizer.step()


def test_an_optimizer_whose_place_was_taken_is_refused(job: Callable[..., ModuleType]) -> None:
    smp = job(bf16=True)
    model = smp.DistributedModel(network())
    first = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    second = smp.DistributedOptimizer(torch.optim.Adam(model.parameters()))
    train(smp, model, second)

    with pytest.raises(SMPStepError, match=r"SGD\.step\(\) was called, and Adam, which"):
        first.step()


def test_a_parameter_has_one_optimizer(job: Callable[..., ModuleType]) -> None:
    smp = job(bf16=True)
    model = smp.DistributedModel(network())
    one, two, *_ = model.parameters()
    first = smp.DistributedOptimizer(torch.optim.SGD([one], lr=0.1))
    smp.DistributedOptimizer(torch.optim.Adam([two]))

    with pytest.raises(SMPValidationError, match="1 parameters that SGD got are in Adam already"):
        first.add_param_group({"params": [two]})
    with pytest.raises(SMPValidationError, match="not the model's"):
        first.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    first.param_groups.clear()
    with pytest.raises(SMPUnsupportedError, match="gone from the groups of SGD"):
        first.step()


# --- The audit of the first updates ---


class Kept(torch.optim.SGD):
    """Leaves matrices as they are."""

    def step(self, closure: Any = None) -> Any:
        before = [(p, p.detach().clone()) for g in self.param_groups for p in g["params"]]
        result = super().step(closure)
        for p, value in before:
            if p.grad is not None and value.dim() > 1:
                p.data.copy_(value)
        return result


class Branches(nn.Module):
    """A trunk, a head that no loss sees, a frozen layer, and words of which few are used."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 4, sparse=sparse)
        self.trunk, self.head, self.frozen = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 4)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        used = self.words(torch.arange(x.shape[0], device=x.device) % 3)
        result: torch.Tensor = self.frozen(self.trunk(x + used))
        return result


AUDITED = ("had gradients", "has made no update", "16 bits")


def test_parameters_that_an_optimizer_leaves_as_they_are_are_named_once(
    job: Callable[..., ModuleType], capfd: pytest.CaptureFixture[str]
) -> None:
    smp = job()
    model = smp.DistributedModel(network())
    train(smp, model, smp.DistributedOptimizer(Kept(model.parameters(), lr=0.1)), 5)

    said = capfd.readouterr().err
    text = "2 parameters (0.weight, 2.weight) had gradients, and no optimizer changed them in the"
    assert said.count(text) == 1
    assert said.count("Kept has them, with a learning rate above 0, and left them as they are") == 1


def test_gradients_that_a_closure_makes_are_not_missed(
    job: Callable[..., ModuleType], capfd: pytest.CaptureFixture[str]
) -> None:
    smp = job()
    model = smp.DistributedModel(network())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    for _ in range(4):
        optimizer.step(lambda: (optimizer.zero_grad(), step_function(smp, model)(torch.ones(4, 4))))

    assert "gradient" not in capfd.readouterr().err


def test_updates_that_16_bits_round_away_are_named(
    job: Callable[..., ModuleType], capfd: pytest.CaptureFixture[str]
) -> None:
    smp = job()
    model = smp.DistributedModel(network().bfloat16())
    optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=1e-4))

    for _ in range(4):
        optimizer.zero_grad()
        step_function(smp, model)(torch.ones(4, 4).bfloat16())
        optimizer.step()

    said = capfd.readouterr().err
    assert "had gradients, and no optimizer changed them in the first 3 updates: Adam steps" in said
    assert said.count("what its learning rate makes of them is rounded away") == 1


@pytest.mark.parametrize("settings", [{}, {"bf16": True}], ids=["plain", "masters"])
def test_an_optimizer_that_is_never_stepped_is_named(
    job: Callable[..., ModuleType], capfd: pytest.CaptureFixture[str], settings: dict[str, Any]
) -> None:
    smp = job(**settings)
    model = smp.DistributedModel(network())
    first, second, *rest = model.parameters()
    smp.DistributedOptimizer(torch.optim.SGD([first, second], lr=0.1))
    optimizer = smp.DistributedOptimizer(torch.optim.Adam(rest))

    train(smp, model, optimizer, 8)

    said = capfd.readouterr().err
    assert said.count("SGD, which smp.DistributedOptimizer got for 2 parameters of `0`") == 1


@pytest.mark.parametrize("settings", [{}, {"bf16": True}, {"fp16": True}], ids=str)
@pytest.mark.parametrize("kind", ["branches", "sparse", "warm-up", "overflow", "tiny rate", "two"])
def test_ordinary_training_passes_the_audit(
    job: Callable[..., ModuleType],
    capfd: pytest.CaptureFixture[str],
    settings: dict[str, Any],
    kind: str,
) -> None:
    smp = job(**settings)
    if kind == "sparse" and settings:
        pytest.skip("masters take no sparse gradients")
    model = smp.DistributedModel(Branches(kind == "sparse"))
    trained = [p for p in model.parameters() if p.requires_grad]
    rate = 1e-12 if kind == "tiny rate" else 0.1
    scale = {"dynamic_loss_scale": True, "init_scale": 2.0**18} if kind == "overflow" else {}
    parts = [trained[:1], trained[1:]] if kind == "two" else [trained]
    optimizers = [
        smp.DistributedOptimizer(torch.optim.SGD(part, lr=rate), **(scale if settings else {}))
        for part in parts
    ]
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizers[0].optimizer, lambda step: min(step, 5) / 5 if kind == "warm-up" else 1.0
    )

    for step in range(8):
        for optimizer in optimizers:
            optimizer.zero_grad()
        step_function(smp, model)(torch.ones(4, 4))
        for number, optimizer in enumerate(optimizers):
            if number == 0 or step % 2:  # the second one every other time
                optimizer.step()
        schedule.step()

    said = capfd.readouterr().err
    assert not any(text in said for text in AUDITED), said
    unused = "2 parameters of `head` (head.weight, head.bias) had no gradient in the first 3"
    assert said.count(unused) == 1


def test_the_wrapper_says_where_what_it_has_not_is(job: Callable[..., ModuleType]) -> None:
    smp = job()
    model = smp.DistributedModel(network())

    with pytest.raises(AttributeError, match=r"take it from model\.get_module\(\)\.append"):
        _ = model.append
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = model.nothing
    with pytest.raises(SMPUnsupportedError, match="before it is wrapped"):
        copy.deepcopy(model)
    with pytest.raises(SMPUnsupportedError, match=r"model\.state_dict\(\)"):
        pickle.dumps(model)

# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_pipeline.py."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from models import WIDTH, Block, make_batches, make_model, make_optimizer, whole_numbers
from torch import nn
from trees import Output, difference, random_tree


@smp.step
def train_step(model, tokens, labels):
    loss = F.cross_entropy(model(tokens), labels)
    model.backward(loss)
    return loss


def _own_share(batch):
    return tuple(part.chunk(smp.dp_size())[smp.dp_rank()] for part in batch)


def train(steps: int, batch_size: int, dtype: torch.dtype, pins: dict[str, int] | None = None):
    """Losses of this replica and the whole trained model."""
    module = make_model(dtype=dtype)
    for name, partition in (pins or {}).items():
        smp.set_partition(module.get_submodule(name), partition)
    model = smp.DistributedModel(module)
    optimizer = smp.DistributedOptimizer(make_optimizer(model))
    losses = []
    for batch in make_batches(steps, batch_size):
        optimizer.zero_grad()
        loss = train_step(model, *_own_share(batch))
        optimizer.step()
        losses.append([one.item() for one in loss.outputs])
    return losses, model.state_dict(), sorted(name for name, _ in model.local_named_parameters())


def train_without_batches_elsewhere(steps: int, batch_size: int) -> list[float]:
    """Losses where only ranks that run the step's function give it a batch."""
    model = smp.DistributedModel(make_model())
    losses = []
    for batch in make_batches(steps, batch_size):
        loss = train_step(model, *batch) if smp.pp_rank() == 0 else train_step(model)
        losses += [one.item() for one in loss.outputs]
    return losses


# --- Arguments, results and hooks ---


class Point(NamedTuple):
    x: torch.Tensor
    tag: str


@dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor | None


class Talkative(nn.Module):
    """Takes and returns structures of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.calls = 0

    def forward(self, point: Point, *, scale: float, options: dict[str, Any]) -> Any:
        assert isinstance(point, Point) and point.tag == "p"
        assert options["none"] is None and options["same"] is options["list"][0]
        self.calls += 1
        y = point.x * self.weight * scale
        return Pair(y, None), {"unused": y * 3, "count": self.calls, "int": torch.arange(3)}


class Caller(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.far = Talkative()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        same = [1]
        pair, more = self.far(
            Point(x, "p"), scale=2.0, options={"none": None, "same": same, "list": [same]}
        )
        assert isinstance(pair, Pair) and pair.right is None
        assert not more["int"].requires_grad
        return pair.left


@smp.step
def talk_step(model, x):
    out = model(x)
    model.backward(out.sum())
    return {"out": out, "nothing": None, "number": float(out.sum()), "pair": (out.mean(), "text")}


def talk():
    module = Caller()
    smp.set_partition(module.far, 1)
    seen = []
    module.far.register_forward_hook(lambda *_: seen.append("hook"))
    model = smp.DistributedModel(module)
    x = torch.arange(4.0 * WIDTH).view(4, WIDTH).requires_grad_()
    returned = talk_step(model, x)
    weight_grads = [p.grad for p in model.local_parameters()]
    return {
        "sum": returned["out"].concat().sum().item(),
        "nothing": returned["nothing"],
        "number": returned["number"],
        "text": returned["pair"][1],
        "mean": returned["pair"][0].reduce_mean().item(),
        "hooks": len(seen),
        "x_grad": None if x.grad is None else x.grad,
        "weight_grads": weight_grads,
    }


class Mirror(nn.Module):
    """Looks at what it gets, and gives it back."""

    def forward(self, tree: Any, *, seed: int) -> Any:
        assert (found := difference(random_tree(seed), tree)) == "", f"seed {seed}: {found}"
        return tree


class Mirrored(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.far = Mirror()

    def forward(self, seeds: torch.Tensor) -> torch.Tensor:
        for seed in seeds.tolist():
            back = self.far(random_tree(seed), seed=seed)
            assert (found := difference(random_tree(seed), back)) == "", f"seed {seed}: {found}"
        return seeds


def mirror_trees(count: int):
    module = Mirrored()
    smp.set_partition(module.far, 1)
    model = smp.DistributedModel(module)
    return forward_step(model, torch.arange(count)).concat().tolist()


class Product(nn.Module):
    """Gets one tensor under two names, and a view of it; gives its result two names."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((WIDTH,), 3.0))

    def forward(self, inputs: Output) -> Output:
        assert type(inputs) is Output and list(inputs) == ["right", "left", "row"]
        assert inputs.left is inputs.right
        y = inputs.left * inputs.right * self.weight + inputs.row
        return Output(y=y, again=y, row=inputs.row)


class Aliases(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.far = Product()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.far(Output(right=x, left=x, row=x[0]))
        assert type(out) is Output and out.y is out.again
        return out.y + 2 * out.row


def pass_aliases(rows: int):
    """The gradients of an argument, and of the parameters that are here."""
    module = Aliases()
    smp.set_partition(module.far, 1)
    model = smp.DistributedModel(module)
    x = torch.arange(float(rows * WIDTH)).view(rows, WIDTH).requires_grad_()
    talk_step(model, x)
    return x.grad, [parameter.grad for parameter in model.local_parameters()]


class Derived(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


@smp.step
def forward_step(model, x):
    return model(x)


def call_super():
    """`super().forward` in a module of another partition; the result of one rank for comparison."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), Derived())
    expected = module(torch.ones(1, WIDTH)).detach().expand(2, WIDTH)
    smp.set_partition(module[1], 1)
    model = smp.DistributedModel(module)
    with torch.no_grad():
        out = forward_step(model, torch.ones(2, WIDTH)).concat()
    assert callable(module[1]._orig_forward)
    return torch.equal(out, expected), out.requires_grad


@smp.step
def backward_step(model, x):
    model.backward(model(x).sum())


def only_forward():
    """Outputs of steps without backward, those of one process, and what a backward raises."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)).double()
    batch = torch.randn(4, WIDTH, dtype=torch.float64)
    expected = torch.cat([module(part) for part in batch.chunk(2)]).detach()
    smp.set_partition(module[1], 1)
    model = smp.DistributedModel(module)
    found = forward_step(model, batch).concat()
    try:
        backward_step(model, batch)
    except smp.exceptions.SMPStepError as error:
        return torch.equal(found, expected), str(error)
    return torch.equal(found, expected), "nothing"


# --- Failures ---


class Breakable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.broken = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.broken:
            raise ArithmeticError("this module fails on purpose")
        return x * self.weight


def fail_and_go_on():
    """A failing remote module, then a step that works."""
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), Breakable())
    smp.set_partition(module[1], 1)
    model = smp.DistributedModel(module)
    try:
        forward_step(model, torch.ones(2, WIDTH))
        error = ""
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}"
    module[1].broken = False
    return error, tuple(forward_step(model, torch.ones(2, WIDTH)).concat().shape)


def split_badly():
    model = smp.DistributedModel(nn.Sequential(nn.Linear(WIDTH, WIDTH), Block()))
    forward_step(model, torch.ones(4, WIDTH))
    forward_step(model, torch.ones(3, WIDTH))


def split_badly_at_once():
    model = smp.DistributedModel(nn.Sequential(nn.Linear(WIDTH, WIDTH), Block()))
    forward_step(model, torch.ones(3, WIDTH))


def call_outside_a_step():
    model = smp.DistributedModel(nn.Sequential(nn.Linear(WIDTH, WIDTH), Block()))
    model(torch.ones(2, WIDTH))


def die_in_a_step(victim: int):
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), Block())
    smp.set_partition(module[1], 1)
    model = smp.DistributedModel(module)
    forward_step(model, torch.ones(2, WIDTH))
    if smp.rank() == victim:
        os.kill(os.getpid(), 9)
    forward_step(model, torch.ones(2, WIDTH))


def leave_a_rank_alone():
    """Rank 1 does not come to the second step, but stays until rank 0 has given up."""
    store = torch.distributed.distributed_c10d._get_default_store()
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), Block())
    smp.set_partition(module[1], 1)
    model = smp.DistributedModel(module)
    forward_step(model, torch.ones(2, WIDTH))
    if smp.rank() == 0:
        try:
            forward_step(model, torch.ones(2, WIDTH))
        finally:
            store.set("gave up", "")
    else:
        store.wait(["gave up"], timedelta(seconds=30))


# --- State dicts ---


def save_and_load(folder: str):
    """Trains, saves in parts and whole, trains on; then loads both and compares."""
    model = smp.DistributedModel(make_model())
    optimizer = smp.DistributedOptimizer(make_optimizer(model))
    batches = make_batches(3, 8)

    def one_step(batch):
        optimizer.zero_grad()
        loss = train_step(model, *_own_share(batch))
        optimizer.step()
        return loss.reduce_mean().item()

    one_step(batches[0])
    smp.save(
        {"model": model.local_state_dict(), "optimizer": optimizer.local_state_dict()},
        f"{folder}/part.pt",
        partial=True,
    )
    full = {key: value.clone() for key, value in model.state_dict().items()}
    full_optimizer = optimizer.state_dict()
    smp.barrier()
    after = [one_step(batches[1]), one_step(batches[2])]

    part = smp.load(f"{folder}/part.pt", partial=True)
    marked = part["model"]["_smp_is_partial"]
    model.load_state_dict(part["model"])
    optimizer.load_state_dict(part["optimizer"])
    from_part = [one_step(batches[1]), one_step(batches[2])]

    model.load_state_dict(full)
    optimizer.load_state_dict(full_optimizer)
    from_full = [one_step(batches[1]), one_step(batches[2])]
    return marked, after, from_part, from_full


@smp.step
def outer_step(model, x):
    return forward_step(model, x)


def nest_steps():
    model = smp.DistributedModel(nn.Sequential(nn.Linear(WIDTH, WIDTH), Block()))
    forward_step(model, torch.ones(2, WIDTH))
    outer_step(model, torch.ones(2, WIDTH))


# --- Traps ---


def resume_before_the_first_step():
    """Adam's step counts after loading a state before the partition, then three steps."""

    def wrapped():
        model = smp.DistributedModel(make_model())
        return model, smp.DistributedOptimizer(torch.optim.Adam(model.parameters()))

    def one_step(model, optimizer, batch):
        optimizer.zero_grad()
        train_step(model, *batch)
        optimizer.step()

    batches = make_batches(4, 8)
    model, optimizer = wrapped()
    one_step(model, optimizer, batches[0])
    saved = optimizer.state_dict()
    smp.shutdown()
    smp.init({"partitions": 2, "ddp": True, "microbatches": 2})
    model, optimizer = wrapped()
    optimizer.load_state_dict(saved)
    for batch in batches[1:]:
        one_step(model, optimizer, batch)
    return [entry["step"].item() for entry in optimizer.state_dict()["state"].values()]


def plain_backward(inside: bool):
    """Gradients of two replicas that call loss.backward() themselves."""
    model = smp.DistributedModel(nn.Linear(1, 1, bias=False))
    x = torch.full((2, 1), 2.0 * (smp.rank() + 1))

    @smp.step
    def step(model, x):
        model(x).sum().backward()

    if inside:
        step(model, x)
    else:
        model(x).sum().backward()
    return next(model.parameters()).grad.item()


class Conjugates(nn.Module):
    def forward(self, x):
        return x.conj(), x.conj().imag


@smp.step
def conjugate_step(model, x):
    return model(x)


def conjugate():
    module = nn.Sequential(Conjugates())
    smp.set_partition(module[0], 1)
    model = smp.DistributedModel(module)
    whole, imaginary = conjugate_step(model, torch.full((2,), 1 + 2j))
    return whole.concat(), imaginary.concat()


@smp.step
def echo_step(model, x):
    model(x[:, :WIDTH])
    return x


def change_what_was_returned():
    """The script changes a tensor that the step returned a view of."""
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), Block())
    smp.set_partition(module[1], 1)
    model = smp.DistributedModel(module)
    x = torch.ones(4, 1 << 20)
    returned = echo_step(model, x)
    if smp.rank() == 0:
        x.zero_()
        return None
    return returned.concat().min().item()


class Named(dict):
    pass


class GrowingCache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.ones(1, WIDTH), persistent=False)

    def forward(self, x):
        if self.cache.shape[0] < x.shape[0]:
            self.register_buffer("cache", torch.ones(x.shape[0], WIDTH), persistent=False)
        return x * self.cache


@smp.step
def named_step(model, x):
    loss = model(x).sum()
    model.backward(loss)
    return Named(loss=loss)


def grow_a_cache():
    model = smp.DistributedModel(nn.Sequential(nn.Linear(WIDTH, WIDTH), GrowingCache(), Block()))
    returned = named_step(model, torch.ones(4, WIDTH))
    return type(returned).__name__, returned["loss"].outputs[0].requires_grad


def send_a_sparse_tensor():
    module = nn.Sequential(nn.Identity())
    smp.set_partition(module[0], 1)
    model = smp.DistributedModel(module)

    @smp.step(non_split_inputs=["x"])
    def step(model, x):
        return model(x.to_sparse())

    step(model, torch.eye(2))


# --- nn.Sequential over several partitions ---


@smp.step
def _sum_step(model, batch):
    output = model(batch)
    model.backward(output.sum())
    return output


def sequential(owners: list[int], grows: bool):
    """The output, the gradients of the layers here, and how many messages the driver sent."""
    layers = whole_numbers(len(owners))
    for layer, owner in zip(layers, owners, strict=True):
        smp.set_partition(layer, owner)
    model = smp.DistributedModel(layers)
    batch = torch.arange(32, dtype=torch.float64).reshape(8, 4) % 3
    _sum_step(model, batch)
    model.zero_grad()
    if grows:
        layers.append(nn.Identity())
    output = _sum_step(model, batch)
    messages = smp.state.require_engine().last_step().messages_sent
    gradients = {name: p.grad for name, p in model.local_named_parameters()}
    return output.concat(), gradients, messages

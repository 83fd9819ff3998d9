# SPDX-License-Identifier: Apache-2.0
"""Models, batches and steps of tests about sharded state, and what ranks do in test_sharding.py.
Data are small integers, so that every sum is exact."""

from __future__ import annotations

from collections.abc import Callable

import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from smdistributed.modelparallel.torch.exceptions import SMPStepError
from torch import nn

WIDTH = 6
ALL_SHARDED = {"sdp_param_persistence_threshold": 0}
NO_CLIP = {"sdp_gradient_clipping": 0}


class Product(nn.Module):
    """A layer whose weights, inputs and gradients are integers."""

    def __init__(self, seed: int, width: int = WIDTH) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(
            torch.randint(-1, 2, (width, width), generator=generator).float()
        )
        self.bias = nn.Parameter(torch.randint(-1, 2, (width,), generator=generator).float())

    def forward(self, x):
        return x @ self.weight + self.bias


class Layer(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.inner = Product(seed)
        self.outer = Product(seed + 100)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x + self.outer(self.inner(x)) * self.scale


class Strange(nn.Module):
    """Oddities of published models: tied weights, a block used twice, a weight used from outside
    its module, a frozen layer, a list and a dict as results, an unused layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Product(1)
        self.blocks = nn.ModuleList(Layer(10 + number) for number in range(3))
        self.frozen = Product(5)
        self.frozen.requires_grad_(False)
        self.never = Product(6)
        self.last = Product(7)
        self.last.weight = self.first.weight
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += x.shape[0]
        x = self.frozen(self.first(x))
        for block in (*self.blocks, self.blocks[0]):
            x = block(x)
        x = x + F.linear(x, self.blocks[1].inner.weight)
        return {"out": [self.last(x)]}


class Chain(nn.Module):
    """Blocks without anything strange."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.first = Product(1)
        self.blocks = nn.Sequential(*(Layer(10 + number) for number in range(depth)))
        self.last = Product(7)

    def forward(self, x):
        return {"out": [self.last(self.blocks(self.first(x)))]}


class Fan(nn.Module):
    """Gradients stay whole whatever the weights are: no layer sees another one's output."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Product(seed) for seed in range(4))
        self.last = Product(7)

    def forward(self, x):
        return {"out": [torch.cat([layer(x) for layer in (*self.layers, self.last)])]}


class Squares(nn.Module):
    """Layers of one weight each, as large as its shards together: the gradient is sent from where
    it lies. One of them is used twice."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Linear(16, 16, bias=False) for _ in range(3)]
        for seed, layer in enumerate(layers):
            layer.weight = Product(seed, 16).weight
        self.blocks = nn.ModuleList(layers)
        self.last = Product(7, 16)

    def forward(self, x):
        x = F.pad(x, (0, 16 - WIDTH), value=1)
        for block in (*self.blocks, self.blocks[0]):
            x = block(x)
        return {"out": [self.last(x)]}


class Scaled(nn.Module):
    """A parameter without a dimension, as a learned temperature is."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.last = Product(7)

    def forward(self, x):
        return {"out": [self.last(x) * self.scale]}


#: In 64 bits the whole numbers of the deeper one stay whole.
KINDS = {
    "strange": lambda: Strange().double(),
    "chain": Chain,
    "fan": Fan,
    "scaled": Scaled,
    "squares": lambda: Squares().double(),
}


class SignSteps(torch.optim.Optimizer):
    """Element-wise, with state; keeps whole weights whole and small, so that sums stay exact."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                held = self.state[parameter]
                if not held:
                    held["sum"] = torch.zeros_like(parameter)
                held["sum"].add_(parameter.grad.sign())
                parameter.sub_(held["sum"].sign() * group["lr"]).clamp_(-1, 1)


@smp.step
def train_step(model, x):
    loss = model(x.to(next(model.parameters()).dtype))["out"][0].sum()
    model.backward(loss)
    return loss


@smp.step
def square_step(model, x):
    loss = model(x)["out"][0].square().mean()
    model.backward(loss)
    return loss


def batch(step: int, replica: int, rows: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + replica)
    return torch.randint(-1, 2, (rows, WIDTH), generator=generator).float()


def make_optimizer(kind: str, parameters):
    if kind == "sign":
        return SignSteps(parameters)
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=1.0)
    return torch.optim.AdamW(parameters, lr=0.01)


def wrapped(kind: str, optimizer: str, passes: int = 1, checkpointed: bool = False):
    model = smp.DistributedModel(KINDS[kind](), backward_passes_per_step=passes)
    if checkpointed:
        for block in model.get_module().blocks:
            smp.set_activation_checkpointing(block)
    return model, smp.DistributedOptimizer(make_optimizer(optimizer, model.parameters()))


def train(kind: str, optimizer: str, steps: int, passes: int = 1, checkpointed: bool = False):
    """The trained model, the losses, and what the store did in the last step."""
    model, wrapped_optimizer = wrapped(kind, optimizer, passes, checkpointed)
    losses = []
    for step in range(steps):
        if step % passes == 0:
            wrapped_optimizer.zero_grad()
        loss = train_step(model, batch(step, smp.dp_rank()))
        losses.append([one.item() for one in loss.outputs])
        if (step + 1) % passes == 0:
            wrapped_optimizer.step()
    store = model.sharded.store
    return model.state_dict(), losses, store.prefetched(), store.use(), store.traffic()


def alone(kind: str, optimizer: str, steps: int, replicas: int, microbatches: int,
          passes: int = 1):  # fmt: skip
    """The same in one process: gradients of all batches added up, and divided."""
    torch.set_num_threads(1)
    module = KINDS[kind]()
    made = make_optimizer(optimizer, module.parameters())
    losses = []
    for step in range(steps):
        if step % passes == 0:
            made.zero_grad()
            for parameter in module.parameters():  # as shards do: unused ones have zeros
                if parameter.requires_grad:
                    parameter.grad = torch.zeros_like(parameter)
        losses.append([])
        for replica in range(replicas):
            for part in batch(step, replica).chunk(microbatches):
                loss = module(part.to(module.last.bias.dtype))["out"][0].sum()
                loss.backward(torch.tensor(1 / microbatches / replicas))
                losses[-1].append(loss.item())
        if (step + 1) % passes == 0:
            made.step()
    return module.state_dict(), losses


def _error_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except SMPStepError as error:
        return error
    return None


def look_at_parameters():
    """Parameters as a script sees them between steps, and during a call."""
    model, optimizer = wrapped("chain", "sgd")
    weight = model.get_module().blocks[1].inner.weight
    before = (tuple(weight.shape), weight.numel(), str(_error_of(weight.isnan)))
    seen = []
    handle = (
        model.get_module()
        .blocks[1]
        .inner.register_forward_pre_hook(lambda *_: seen.append(bool(weight.isnan().any())))
    )
    train_step(model, batch(0, 0))
    handle.remove()
    sizes = (weight.ds_numel, tuple(weight.ds_shape), weight.ds_tensor.ds_numel)
    flat = [one.numel() for one in optimizer.fp32_partitioned_groups_flat]
    group = torch.distributed.get_world_size(optimizer.ds_param_shard_group)
    same = optimizer.fp16_groups[0][0] is next(model.parameters())
    return before, seen, sizes, flat, group, same


def evaluate():
    """A pass without gradients, outside of a step, between training steps."""
    model, optimizer = wrapped("strange", "sign")
    results = []
    for step in range(3):
        with torch.no_grad():
            results.append(model(batch(9, 0).double())["out"][0])
        optimizer.zero_grad()
        train_step(model, batch(step, smp.dp_rank()))
        optimizer.step()
    return results, model.sharded.store.use()["live"]


def outside_of_steps(steps: int):
    """loss.backward() without smp.step."""
    model, optimizer = wrapped("strange", "sign")
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(step, smp.dp_rank()).double())["out"][0].sum().backward()
        optimizer.step()
    return model.state_dict()


def meddle(how: str):
    """Changes a parameter behind the library's back."""
    model, optimizer = wrapped("chain", "sgd")
    weight = model.get_module().blocks[1].inner.weight
    if how == "memory":
        weight.data = torch.ones(WIDTH, WIDTH)
    elif how == "value":
        block = model.get_module().blocks[1]
        block.inner.register_forward_pre_hook(lambda *_: (weight.detach().add_(1), None)[1])
    elif how == "write":
        with torch.no_grad():
            weight.fill_(1)
    train_step(model, batch(0, 0))
    optimizer.step()


def not_finite(replica: int):
    """Errors of two tries to step where one replica's batch is bad, and whether anything moved."""
    module = Chain()
    if smp.pp_size() > 1:
        split_over_partitions(module)
    model = smp.DistributedModel(module)
    inner = make_optimizer("adamw", model.parameters())
    optimizer = smp.DistributedOptimizer(inner)
    x = batch(0, 0)
    if smp.dp_rank() == replica:
        x[0, 0] = float("nan")
    train_step(model, x)
    masters = model.sharded.store.masters()
    before = [master.clone() for master in masters]
    errors = []
    for _ in range(2):
        try:
            optimizer.step()
        except SMPStepError as error:
            errors.append(str(error))
    same = all(torch.equal(*both) for both in zip(masters, before, strict=True))
    return errors, same and not inner.state


def clipped(max_norm: float):
    """The norm that the step clipped by, and the change of the weights."""
    model, optimizer = wrapped("chain", "sgd")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer.zero_grad()
    train_step(model, batch(0, smp.dp_rank()))
    optimizer.step()
    after = model.state_dict()
    return optimizer._global_grad_norm, {name: after[name] - before[name] for name in before}


# --- With 16-bit and optimizer state ---


class Short(nn.Module):
    """So few sums that bfloat16 holds them exactly."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Product(1)
        self.last = Product(7)

    def forward(self, x):
        assert x.dtype == self.first.weight.dtype
        return {"out": [self.last(self.first(x))]}


KINDS["short"] = Short


@smp.step
def float_step(model, x):
    loss = model(x)["out"][0].sum()
    assert loss.dtype == torch.float32
    model.backward(loss)
    return loss


def split_over_partitions(module):
    for name, part in module.named_modules():
        if name in ("last", "blocks.2", "blocks.3"):
            smp.set_partition(part, smp.pp_size() - 1)


# --- Memory ---


class Large(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Product(number, 64) for number in range(8)))

    def forward(self, x):
        return self.blocks(x)


@smp.step
def large_step(model, x):
    loss = model(x).sum()
    model.backward(loss)
    return loss


def measure():
    """Memory by the ledger after two steps, and the elements of the model."""
    module = Large()
    elements = sum(parameter.numel() for parameter in module.parameters())
    model = smp.DistributedModel(module)
    optimizer = smp.DistributedOptimizer(make_optimizer("adamw", model.parameters()))
    for _ in range(2):
        optimizer.zero_grad()
        large_step(model, torch.ones(2, 64))
        optimizer.step()
    return smp.memory_summary(), elements


def with_grad_scaler(steps: int, spoiled: list[int], spoiler: int):
    """Scales, and whether the weights moved, where one rank's batch overflows in some steps."""
    model, optimizer = wrapped("chain", "sign")
    scaler = smp.amp.GradScaler(init_scale=64.0, growth_interval=2)

    @smp.step
    def scaled_step(x):
        model.backward(scaler.scale(model(x)["out"][0].sum()))

    scales, moved = [], []
    for step in range(steps):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        optimizer.zero_grad()
        x = batch(step, smp.dp_rank())
        if step in spoiled and smp.rank() == spoiler:
            x[0, 0] = float("inf")
        scaled_step(x)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        after = model.state_dict()
        moved.append(any(not torch.equal(after[name], before[name]) for name in before))
    return scales, moved


def refuse_cpu():
    smp.DistributedModel(Chain()).cpu()


def refuse_hook():
    model = smp.DistributedModel(Chain())
    model.register_comm_hook(None, lambda _state, bucket: bucket)


@smp.step
def uneven_step(model, x):
    out = model(x.to(next(model.parameters()).dtype))["out"][0]
    model.backward(out.float().square().mean())


def too_few(batches: list[int]):
    """Ranks with different numbers of batches."""
    module = Chain()
    if smp.tp_size() > 1:
        module.last = nn.Sequential(Product(7), smp.nn.DistributedLinear(WIDTH, WIDTH))
    if smp.pp_size() > 1:
        split_over_partitions(module)
    model = smp.DistributedModel(module)
    optimizer = smp.DistributedOptimizer(make_optimizer("adamw", model.parameters()))
    for step in range(batches[smp.rank()]):
        optimizer.zero_grad()
        uneven_step(model, batch(step, smp.dp_rank()))
        optimizer.step()


def refuse_join():
    model = smp.DistributedModel(Chain())
    with model.join():
        pass


def keep_activations(width: int, rows: int, layers: int, steps: int):
    """Bytes that forwards keep by the ledger, after each step, of a model whose units and
    activations are of one order of size."""
    body = nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers))
    )
    model = smp.DistributedModel(body)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    @smp.step
    def step(model, batch):
        model.backward(model(batch).square().mean())

    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        step(model, torch.ones(rows, width))
        optimizer.step()
        found.append(smp.memory_summary()["activations"])
    return found

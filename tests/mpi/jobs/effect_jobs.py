# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_remote_effects.py: a module of another partition tells its caller things by other
ways than its result."""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import functools
from typing import Any
from unittest import mock

import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch._pipeline import remote_modules
from torch import nn

WIDTH = 4
RECORDER: contextvars.ContextVar[Any] = contextvars.ContextVar("RECORDER", default=None)


@dataclasses.dataclass
class Notes:
    losses: list[torch.Tensor] = dataclasses.field(default_factory=list)
    last: torch.Tensor | None = None


class Slots:
    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: torch.Tensor | None = None


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.aux = x.square().mean()
        return self.lin(x)


class Far(nn.Module):
    """``way`` says how it tells the square mean of its result."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.lin, self.inner, self.way = nn.Linear(WIDTH, WIDTH), Inner(), way
        self.aux: Any = None
        self.scale: Any = 1.0
        self.register_buffer("state", torch.zeros(()))

    def forward(self, x: torch.Tensor, told: Any = None) -> Any:
        if self.way == "in_place":
            x.mul_(2)
        elif self.way == "view_in_place":
            x[:, 0].mul_(3)
        y = self.lin(x) * self.scale
        aux = y.square().mean()
        if told is not None:
            _tell(self.way, told, aux)
            return (y, told) if self.way == "given_back" else y
        match self.way:
            case "attribute" | "attribute_deleted":
                self.aux = aux
            case "attribute_with_structure":
                self.aux = {"losses": [aux]}
            case "buffer":
                self.state = aux
            case "child_attribute":
                return self.inner(y)
            case "context":
                RECORDER.get()["aux"].append(aux)
            case "context_set":
                RECORDER.set(aux)
            case "context_input":
                RECORDER.get()["aux"].append(x)
        return y


def _tell(way: str, told: Any, aux: torch.Tensor) -> None:
    match way:
        case "list" | "deque":
            told.append(aux)
        case "set":
            told.add(aux)
        case "nested":
            told["all"][0].losses.append(aux)
        case "dataclass" | "slots":
            told.last = aux
        case "removed":
            told["aux"] = aux * told.pop("factor")
        case _:
            told["aux"] = aux


THINGS = {
    "dict": dict,
    "defaultdict": lambda: collections.defaultdict(list),
    "list": list,
    "deque": collections.deque,
    "set": set,
    "nested": lambda: {"all": (Notes(),)},
    "dataclass": Notes,
    "slots": Slots,
    "removed": lambda: {"factor": 3.0},
    "given_back": dict,
}


class Net(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.near, self.far, self.way = nn.Linear(WIDTH, WIDTH), Far(way), way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The result twice, so that what the first call leaves is there at the second."""
        x = self.near(x).tanh() * 1
        if self.way in THINGS:
            told = THINGS[self.way]()
            y = self.far(x, told)
            return self._told(y, told)
        if self.way.startswith("context"):
            recorder = {"aux": [x * 2]}
            token = RECORDER.set(recorder)
            y = self.far(self.far(x))
            aux = RECORDER.get() if self.way == "context_set" else sum(recorder["aux"]).mean()
            RECORDER.reset(token)
            return y + aux
        if self.way == "set_by_caller":
            self.far.scale = x.mean()
        y = self.far(x)
        match self.way:
            case "attribute":
                y = y + self.far.aux
            case "attribute_with_structure":
                y = y + self.far.aux["losses"][0]
            case "attribute_deleted":
                y = y + self.far.aux
                del self.far.aux
                y = y + self.far(x)
            case "buffer":
                y = y + self.far.state
            case "child_attribute":
                y = y + self.far.inner.aux
            case "in_place" | "view_in_place":
                y = y + x
        return y

    def _told(self, y: Any, told: Any) -> torch.Tensor:
        match self.way:
            case "nested":
                return y + told["all"][0].losses[0]
            case "dataclass" | "slots":
                return y + told.last
            case "list" | "deque" | "set":
                return y + sum(told)
            case "removed":
                return y + told["aux"] + len(told)
            case "given_back":
                assert y[1] is told
                return y[0] + y[1]["aux"]
        return y + told["aux"]


def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(4, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2)]


def made(kind: type[nn.Module], way: str) -> nn.Module:
    torch.manual_seed(2)
    return kind(way).double()


def train_alone(module: nn.Module) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses and gradients of plain PyTorch, in the two microbatches that the job makes."""
    losses = []
    for x in batches():
        parts = [module(part).square().mean() / 2 for part in x.chunk(2)]
        for part in parts:
            part.backward()
        losses.append(sum(part.item() for part in parts))
    return losses, {n: p.grad for n, p in module.named_parameters() if p.grad is not None}


@smp.step
def step(model: smp.DistributedModel, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).square().mean()
    model.backward(loss)
    return loss


def train(way: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses, and the gradients of this rank's parameters."""
    net = made(Net, way)
    smp.set_partition(net.far, 1)
    model = smp.DistributedModel(net)
    losses = [step(model, x).reduce_mean().item() for x in batches()]
    gradients = {n: p.grad for n, p in model.local_named_parameters() if p.grad is not None}
    return losses, gradients


class Refused(nn.Module):
    """Does in its forward, or has done to it, what cannot be known on another partition."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.near, self.far, self.way = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        match self.way:
            case "functional_call":
                weights = {"weight": torch.ones(WIDTH, WIDTH, dtype=x.dtype)}
                return torch.func.functional_call(self.far, weights, (x,))
            case "gradient" | "gradient_without_graph":
                with torch.enable_grad():
                    x = x.detach().requires_grad_()
                    keeps = self.way == "gradient"
                    (g,) = torch.autograd.grad(self.far(x).sum(), x, create_graph=keeps)
                return self.near(x) + g
            case "lost_variable":
                contextvars.ContextVar("LOST").set(1)
        return self.far(self.near(x))


@smp.step
def step_that_goes_back_twice(model: smp.DistributedModel, x: torch.Tensor) -> None:
    y = model(x)
    model.backward(y.mean(), retain_graph=True)
    model.backward(y.square().mean())


READS: dict[str, Any] = {
    "read": lambda weight: weight.norm(),
    "read_data": lambda weight: weight.data.sum(),
    "read_view": lambda weight: weight.detach()[0] * 2,
    "read_list": lambda weight: torch.cat([weight, weight]),
    "read_bf16": lambda weight: weight.to(torch.bfloat16),
}


def refuse(way: str) -> None:
    net = made(Refused, way)
    smp.set_partition(net.far, 1)
    model = smp.DistributedModel(net)
    if way == "retain_graph":
        step_that_goes_back_twice(model, batches()[0])
    step(model, batches()[0])
    if way == "clamp":
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.clamp_(-1, 1)
    if way in READS:
        near, far = model.get_module().near, model.get_module().far
        with torch.no_grad():
            READS[way]((far if smp.pp_rank() == 0 else near).weight)


FILLED: list[torch.Tensor] = []


class Listener:
    def __init__(self) -> None:
        self.outputs: list[torch.Tensor] = []

    def listen(self, _module: nn.Module, _args: Any, output: torch.Tensor) -> None:
        self.outputs.append(output)


class Keeping(nn.Linear):
    """Linear layer whose forward keeps what it computes where its caller does not look."""

    def __init__(self, way: str) -> None:
        super().__init__(WIDTH, WIDTH)
        self.way, self.history = way, {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if self.way == "attribute":
            self.history[len(self.history)] = float(y.detach().mean())
        elif self.way == "global":
            FILLED.append(y)
        return y


def keep(way: str) -> list[str]:
    """Warnings of this rank."""
    net = made(Refused, "")
    net.far = far = Keeping(way).double()
    seen: collections.deque[torch.Tensor] = collections.deque()
    if way == "closure":
        far.register_forward_hook(lambda _module, _args, output: seen.append(output))
    elif way == "partial":
        far.register_forward_pre_hook(functools.partial(lambda kept, *_: kept.append(1), seen))
    elif way == "object":
        far.register_forward_hook(Listener().listen)
    smp.set_partition(far, 1)
    model = smp.DistributedModel(net)
    told: list[str] = []
    with mock.patch.object(remote_modules, "warn_once", told.append):
        step(model, batches()[0])
    return sorted(set(told))


def evaluate_encoder() -> torch.Tensor:
    """With what is padding, over partitions that cut each layer."""
    encoder = encoder_alone()
    for layer in encoder.layers:
        smp.set_partition(layer.linear1, 1)
    model = smp.DistributedModel(encoder).eval()

    @smp.step
    def evaluate(model: smp.DistributedModel, x: torch.Tensor, padding: torch.Tensor) -> Any:
        return model(x, src_key_padding_mask=padding)

    with torch.no_grad():
        return evaluate(model, *padded_batch()).concat()


def encoder_alone() -> nn.TransformerEncoder:
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2).double().eval()


def padded_batch() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(4, 3, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, torch.tensor([[False, False, True]] * 4)


def record_and_generate() -> tuple[list[torch.Tensor], torch.Tensor]:
    """States that a Llama over two partitions records in a step, and tokens that it generates."""
    model = smp.DistributedModel(llama_alone())
    layers = model.get_module().model.layers
    assert len(layers) == 2

    @smp.step
    def record(model: smp.DistributedModel, ids: torch.Tensor) -> Any:
        out = model(input_ids=ids, output_hidden_states=True, output_attentions=True)
        return [*out.hidden_states, *out.attentions]

    @smp.step
    def generate(model: smp.DistributedModel, ids: torch.Tensor) -> Any:
        return model.get_module().generate(input_ids=ids, max_new_tokens=4, do_sample=False)

    with torch.no_grad():
        recorded = [one.concat() for one in record(model, words())]
        return recorded, generate(model, words()).concat()


def llama_alone(place: bool = True) -> nn.Module:
    import transformers  # noqa: PLC0415 - takes seconds, which other jobs need not wait for

    torch.manual_seed(7)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "max_position_embeddings": 16, "vocab_size": 32}
    ends = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
    config = transformers.LlamaConfig(**sizes, **heads, **ends, attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config).double().eval()
    if place:
        smp.set_partition(model.model.layers[1], 1)
    return model


def words() -> torch.Tensor:
    return torch.arange(3, 19).view(4, 4)

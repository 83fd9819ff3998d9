# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the model and in how it is wrapped."""

from __future__ import annotations

import copy
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn

from tests.mistakes.case import (
    BF16,
    DDP,
    EVERYWHERE,
    ONE,
    PP,
    SDP,
    TP,
    WORKS,
    error,
    mistake,
    warning,
)
from tests.mistakes.frame import FOLDER, batches, net, train, train_step, wrap


@mistake(
    "A computation of the user's class, called on the wrapper", (EVERYWHERE, error("get_module()"))
)
def method_of_the_module() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 4)

        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.encode(x)

    model, _ = wrap(Net())
    model.encode(torch.ones(2, 8))


@mistake(
    "A method other than `forward` is called in the forward pass",
    (PP, error("parameter encoder.weight was read or written, and its values are on partition 1")),
    (SDP, WORKS),
    parameters={"auto_partition": False, "default_partition": 0},
)
def other_method_in_forward() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(8, 4))

        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with smp.partition(smp.pp_size() - 1):
                self.encoder = Encoder()
            with smp.partition(0):
                self.out = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.encoder.encode(x))

    model, optimizer = wrap(Net())
    train(model, optimizer, 2)


@mistake(
    "The weights of another module are used in `forward`",
    (PP, error("parameter b.weight was read or written, and its values are on partition 1")),
    (SDP, WORKS),
    parameters={"auto_partition": False, "default_partition": 0},
)
def weights_of_another_module() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with smp.partition(0):
                self.a = nn.Linear(8, 8)
            with smp.partition(smp.pp_size() - 1):
                self.b = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x) @ self.b.weight.t()

    model, optimizer = wrap(Net())
    train(model, optimizer, 2)


@mistake(
    "A 32-bit table in a 16-bit model",
    (BF16, error("must have the same dtype, but got Float and BFloat16")),
)
def table_of_another_type() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.table = nn.Linear(8, 4), torch.rand(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x.float() @ self.table)

    model, optimizer = wrap(Net())
    train(model, optimizer, 1)


@mistake("Ranks build different models", ((PP, SDP, DDP), error("built another model than rank 0")))
def models_that_differ() -> None:
    width = 16 + smp.rank()
    model, optimizer = wrap(nn.Sequential(nn.Linear(8, width), nn.Linear(width, 4)))
    train(model, optimizer, 1)


@mistake("A second model is wrapped", (EVERYWHERE, error("one nn.Module")))
def second_model() -> None:
    smp.DistributedModel(net())
    smp.DistributedModel(net())


@mistake("The wrapped model is copied (`copy.deepcopy`)", (EVERYWHERE, error("before")))
def deep_copy() -> None:
    model, _ = wrap()
    copy.deepcopy(model)


@mistake("The wrapped model is pickled (`torch.save(model)`)", (EVERYWHERE, error("state_dict()")))
def pickled_model() -> None:
    model, _ = wrap()
    torch.save(model, FOLDER / "model.pt")


@mistake(
    "A layer is replaced after wrapping",
    ((SDP, DDP), error("before it is wrapped")),
    ((ONE, PP), WORKS),
)
def layer_replaced() -> None:
    model, optimizer = wrap()
    model.get_module()[2] = nn.Linear(16, 4)
    train(model, optimizer, 2)


@mistake("`torch.compile` under the wrapper", ((ONE, PP), warning("torch.compile")))
def compiled_inside() -> None:
    model, optimizer = wrap(torch.compile(net()))  # type: ignore[arg-type]
    train(model, optimizer, 2)


@mistake("DistributedDataParallel around the wrapper", (DDP, error("averages gradients by itself")))
def ddp_around() -> None:
    model, _ = wrap()
    nn.parallel.DistributedDataParallel(model)


@mistake(
    "DataParallel or a scripted module inside the wrapper", ((ONE, DDP), error("DataParallel"))
)
def data_parallel_inside() -> None:
    wrap(nn.DataParallel(net()))


@mistake("`super().forward()` in a model whose parts are distributed", (EVERYWHERE, WORKS))
def forward_of_the_base_class() -> None:
    class Base(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x))

    class Net(Base):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 2

    model, optimizer = wrap(Net())
    train(model, optimizer, 2)


@mistake(
    "Tied weights, placed on two partitions by hand",
    (PP, error("put both on one partition")),
    parameters={"auto_partition": False, "default_partition": 0},
)
def tied_over_partitions() -> None:
    class Lm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with smp.partition(0):
                self.embed = nn.Embedding(16, 8)
            with smp.partition(1):
                self.head = nn.Linear(8, 16, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed((x.abs() * 4).long() % 16)).sum(1)

    model, optimizer = wrap(Lm())
    train(model, optimizer, 2)


@mistake(
    "A checkpointed layer's input is changed in place",
    (ONE, error("modified by an inplace operation")),
    (PP, WORKS),
)
def input_changed_in_place() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.block, self.b = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.a(x)
            out = smp.checkpoint(self.block, hidden)
            hidden.add_(1.0)
            return self.b(out + hidden)

    model, optimizer = wrap(Net())
    train(model, optimizer, 1)


@mistake("Own data decides which modules run", (SDP, error("run different modules")), (DDP, WORKS))
def control_flow_by_data() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e0, self.e1 = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.e0 if smp.rank() == 0 else self.e1)(x)

    model, optimizer = wrap(Experts())
    train(model, optimizer, 3)


@mistake(
    "Other data on the ranks of a tensor group, with `prescaled_batch`",
    (TP, error("argument x")),
    parameters={"prescaled_batch": True},
)
def other_data_in_a_tensor_group() -> None:
    model, _ = wrap()
    x, y = next(batches(1))
    train_step(model, x + smp.rank(), y)


@mistake(
    "BatchNorm over microbatches of one sample",
    ((ONE, PP), error("Expected more than 1 value")),
    parameters={"microbatches": 8},
)
def batch_norm_of_one_sample() -> None:
    model, optimizer = wrap(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)))
    train(model, optimizer, 2)


@mistake("Two forward passes before one backward", (EVERYWHERE, WORKS))
def two_forwards() -> None:
    @smp.step
    def step(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(x), y) - F.cross_entropy(model(-x), y)
        model.backward(loss)
        return loss

    model, optimizer = wrap(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)))
    for x, y in batches(2):
        optimizer.zero_grad()
        step(model, x, y)
        optimizer.step()

# SPDX-License-Identifier: Apache-2.0
"""Mistakes in settings, environment and initialisation."""

from __future__ import annotations

import smdistributed.modelparallel.torch as smp
import torch

from tests.mistakes.case import DDP, ONE, PP, SDP, TP, error, mistake, warning
from tests.mistakes.frame import net, train, wrap


@mistake(
    "Degrees that do not divide the processes",
    ((PP, TP), error("divisible")),
    (SDP, error("cannot be combined")),
    parameters={"pipeline_parallel_degree": 3},
)
def degrees_that_do_not_divide() -> None:
    pass


@mistake(
    "Several replicas without `ddp`", (PP, error("ddp")), parameters={"pipeline_parallel_degree": 1}
)
def replicas_without_ddp() -> None:
    wrap()


@mistake(
    "A misspelt name in `mp_parameters`",
    ((ONE, PP), error("did you mean")),
    parameters={"microbatch": 4},
)
def misspelt_parameter() -> None:
    pass


@mistake(
    "A value of the wrong kind in `mp_parameters`",
    ((ONE, PP), error("optimize")),
    parameters={"optimize": "fast"},
)
def wrong_value() -> None:
    pass


@mistake(
    "Settings that exclude each other",
    ((ONE, SDP), error("fp16")),
    parameters={"fp16": True, "bf16": True},
)
def settings_that_exclude_each_other() -> None:
    pass


@mistake(
    "A misspelt variable",
    ((ONE, PP), warning("did you mean SMP_PROGRESS?")),
    environment={"SMP_PROGRES": "off"},
)
def misspelt_variable() -> None:
    pass


@mistake(
    "A variable with a value that it does not have",
    ((ONE, PP), error("SMP_PROGRESS")),
    environment={"SMP_PROGRESS": "of"},
)
def wrong_variable() -> None:
    pass


@mistake("`smp.init()` is called twice", ((ONE, PP), warning("smp.init was called a second time")))
def initialised_twice() -> None:
    smp.init({"microbatches": 8})


@mistake("`init_process_group` after `smp.init()`", ((PP, DDP), error("twice")))
def process_group_twice() -> None:
    torch.distributed.init_process_group("gloo")


@mistake(
    "A backend that does not exist",
    (DDP, error("ddp_dist_backend")),
    parameters={"ddp_dist_backend": "ncll"},
)
def unknown_backend() -> None:
    pass


@mistake(
    "`torch.cuda.set_device(smp.local_rank())` on a machine without a GPU",
    ((ONE, PP), error("SMP_CPU=1")),
)
def cuda_without_a_gpu() -> None:
    torch.cuda.set_device(smp.local_rank())


@mistake("A partition that there is not", (PP, error("expected 0 to 1")))
def partition_of_an_unknown_module() -> None:
    model = net()
    smp.set_partition(model, 5)
    train(*wrap(model), 1)


@mistake("A tensor of the GPU without a GPU", (ONE, error("SMP_CPU=1")))
def tensor_to_the_gpu() -> None:
    torch.ones(8).to("cuda")

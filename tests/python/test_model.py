# SPDX-License-Identifier: Apache-2.0
"""Arguments that DistributedModel takes and refuses, in one process."""

from types import ModuleType

import pytest
import torch
from smdistributed.modelparallel.torch._annotations.partition_annotations import partition_of
from smdistributed.modelparallel.torch.exceptions import (
    SMPNotInitializedError,
    SMPStepError,
    SMPUnsupportedError,
    SMPValidationError,
)
from torch import nn


def test_before_init_it_is_refused() -> None:
    import smdistributed.modelparallel.torch as smp  # noqa: PLC0415

    with pytest.raises(SMPNotInitializedError, match=r"smp\.DistributedModel"):
        smp.DistributedModel(nn.Linear(2, 2))


def test_a_second_model_is_refused(smp: ModuleType) -> None:
    smp.DistributedModel(nn.Linear(2, 2))

    with pytest.raises(SMPValidationError, match="a second time; a process wraps one model"):
        smp.DistributedModel(nn.Linear(2, 2))


def test_scripted_modules_are_refused(smp: ModuleType) -> None:
    scripted = torch.jit.script(nn.Linear(2, 2))

    with pytest.raises(SMPValidationError, match="scripted module"):
        smp.DistributedModel(scripted)


def test_compiled_modules_run_as_they_are_under_their_plain_names(
    smp: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    def compiler(*_: object) -> None:
        raise AssertionError("something was compiled")

    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    names, inner = list(module.state_dict()), module[1]
    module[1] = torch.compile(inner, backend=compiler)
    smp.set_partition(module[1], 0)
    module[2].compile(backend=compiler)

    model = smp.DistributedModel(torch.compile(module, backend=compiler))
    model(torch.ones(1, 2))

    assert model.get_module() is module
    assert module[1] is inner
    assert partition_of(inner) == 0
    assert list(model.state_dict()) == names
    assert "undoes torch.compile, and runs as they are: (root), 1, 2\n" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        ("model", {}, "got str; it wraps a torch.nn.Module"),
        (nn.Linear(2, 2), {"trace_device": "tpu"}, 'trace_device is "tpu"'),
        (
            nn.Linear(2, 2),
            {"trace_device": "cpu", "trace_execution_times": True},
            'trace_execution_times is True and trace_device is "cpu"',
        ),
        (nn.Linear(2, 2), {"backward_passes_per_step": 0}, "backward_passes_per_step is 0"),
    ],
)
def test_odd_arguments_are_refused(
    smp: ModuleType, module: object, options: dict[str, object], message: str
) -> None:
    with pytest.raises(SMPValidationError, match=message):
        smp.DistributedModel(module, **options)


@pytest.mark.parametrize("options", [{}, {"trace_device": "gpu"}, {"trace_device": "meta"}])
def test_execution_times_are_asked_for_wherever_the_trace_may_run(
    smp: ModuleType, options: dict[str, object]
) -> None:
    assert smp.DistributedModel(nn.Linear(2, 2), trace_execution_times=True, **options).partitioned


def test_backward_outside_a_step_is_refused(smp: ModuleType) -> None:
    model = smp.DistributedModel(nn.Linear(2, 2))

    with pytest.raises(SMPStepError, match=r"smp\.step"):
        model.backward(model(torch.ones(1, 2)).sum())


def test_one_partition_runs_outside_a_step(smp: ModuleType) -> None:
    model = smp.DistributedModel(nn.Linear(2, 1, bias=False))

    model(torch.full((1, 2), 3.0)).sum().backward()

    assert model.partitioned
    assert torch.equal(model.get_module().weight.grad, torch.full((1, 2), 3.0))


def test_backward_takes_several_tensors_with_gradients(smp: ModuleType) -> None:
    model = smp.DistributedModel(
        nn.Linear(2, 2, bias=False), average_grads_across_microbatches=False
    )

    @smp.step
    def step(model: nn.Module, x: torch.Tensor) -> None:
        out = model(x)
        model.backward([out[:, 0], out[:, 1].sum()], [torch.full((1,), 5.0), None])

    step(model, torch.ones(2, 2))

    assert torch.equal(model.get_module().weight.grad, torch.tensor([[10.0, 10.0], [2.0, 2.0]]))


def test_backward_refuses_what_has_no_gradient(smp: ModuleType) -> None:
    model = smp.DistributedModel(nn.Linear(2, 2))

    @smp.step
    def step(model: nn.Module, x: torch.Tensor) -> None:
        model.backward(model(x).detach().sum())

    with pytest.raises(Exception, match="requires no gradient; was it detached"):
        step(model, torch.ones(2, 2))


def test_parameters_are_known_by_their_place_in_the_model(smp: ModuleType) -> None:
    with pytest.raises(SMPNotInitializedError, match=r"call smp\.DistributedModel first"):
        _ = smp.state.param_index_to_name_tp_group
    model = smp.DistributedModel(nn.Linear(2, 2))

    (names,) = smp.state.param_index_to_name_tp_group
    assert list(names.items()) == list(enumerate(dict(model.named_parameters())))
    assert smp.state.param_name_to_index_tp_group == [{"weight": 0, "bias": 1}]


def test_names_of_tensorflow_say_so(smp: ModuleType) -> None:
    with pytest.raises(SMPUnsupportedError, match="TensorFlow"):
        smp.StepOutput([torch.ones(1)]).merge()

# SPDX-License-Identifier: Apache-2.0
"""Arguments of a step become microbatches, what they return becomes one result."""

from collections import OrderedDict, UserDict, namedtuple
from types import MappingProxyType
from typing import Any

import pytest
import torch
from smdistributed.modelparallel.torch._pipeline.splitting import InputSplit
from smdistributed.modelparallel.torch._pipeline.step_output import StepOutput, collect_outputs
from smdistributed.modelparallel.torch._ranks import log
from smdistributed.modelparallel.torch.exceptions import (
    SMPStepError,
    SMPUnsupportedError,
    SMPValidationError,
)
from torch.utils.data import DataLoader

Pair = namedtuple("Pair", ["left", "right"])


class BatchEncoding(UserDict):  # type: ignore[type-arg]
    """Has a dict in ``data`` and other attributes, as that of Transformers."""

    def __init__(self, data: dict[str, Any], note: str) -> None:
        super().__init__(data)
        self.note = note


class ModelOutput(OrderedDict):  # type: ignore[type-arg]
    """Mapping whose items are attributes too, as in those of Transformers."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


def step(model: Any, batch: Any, *rest: Any, scale: Any = None, **options: Any) -> None: ...


def parts(value: Any, microbatches: int = 2, **settings: Any) -> list[Any]:
    """Parts of ``value`` for each microbatch."""
    return [a[1] for a, _ in InputSplit(step, **settings).split((None, value), {}, microbatches)]


def test_tensors_are_cut_into_equal_parts_along_axis_0() -> None:
    first, second = parts(torch.arange(6).reshape(6, 1))

    assert first.tolist() == [[0], [1], [2]]
    assert second.tolist() == [[3], [4], [5]]


def test_containers_are_walked_and_keep_their_types() -> None:
    x = torch.arange(4)
    nested = {"list": [x, (x, 7)], "pair": Pair(x, "r"), "set": {x}, "ordered": OrderedDict(a=x)}

    second = parts(nested)[1]

    assert second["list"][0].tolist() == [2, 3]
    assert isinstance(second["list"][1], tuple)
    assert second["list"][1][1] == 7
    assert isinstance(second["pair"], Pair)
    assert second["pair"].left.tolist() == [2, 3]
    assert next(iter(second["set"])).tolist() == [2, 3]
    assert type(second["ordered"]) is OrderedDict
    assert nested["list"][0] is x  # the caller's objects stay as they are


def test_mappings_that_are_no_dicts_are_walked() -> None:
    batch = BatchEncoding({"ids": torch.arange(4)}, note="kept")

    first = parts(batch)[0]

    assert type(first) is BatchEncoding
    assert first.note == "kept"
    assert first["ids"].tolist() == [0, 1]
    assert batch["ids"].tolist() == [0, 1, 2, 3]
    assert parts(MappingProxyType({"ids": torch.arange(4)}))[1]["ids"].tolist() == [2, 3]


def test_everything_else_is_passed_by_reference() -> None:
    model = torch.nn.Linear(1, 1)

    for args, kwargs in InputSplit(step).split((model, "text"), {"scale": None, "n": 3}, 4):
        assert args[0] is model
        assert args[1] == "text"
        assert kwargs == {"scale": None, "n": 3}


def test_keyword_and_variable_arguments_are_split_too() -> None:
    x = torch.arange(4)

    args, kwargs = InputSplit(step).split((None, x, x), {"scale": x, "mask": x}, 2)[1]

    assert [a.tolist() for a in args[1:]] == [[2, 3], [2, 3]]
    assert kwargs["scale"].tolist() == kwargs["mask"].tolist() == [2, 3]


def test_listed_parameters_stay_whole() -> None:
    x = torch.arange(3)

    assert parts(x, non_split_inputs=["batch"])[1] is x
    assert InputSplit(step, ["mask"]).split((None, 1), {"mask": x}, 2)[0][1]["mask"] is x


def test_another_axis_can_be_asked_for() -> None:
    x = torch.arange(8).reshape(2, 4)

    assert parts(x, input_split_axes={"batch": 1})[1].tolist() == [[2, 3], [6, 7]]
    assert parts({"x": x}, input_split_axes={"batch": -1})[0]["x"].tolist() == [[0, 1], [4, 5]]


def test_an_object_may_slice_itself() -> None:
    class Graph:
        def smp_slice(self, num_mb: int, mb: int, axis: int) -> tuple[int, int, int]:
            return num_mb, mb, axis

    assert parts([Graph()], 3, input_split_axes={"batch": 2}) == [[(3, m, 2)] for m in range(3)]


def test_placeholders_without_columns_split() -> None:
    assert parts(torch.empty(4, 0))[0].shape == (2, 0)


def test_one_microbatch_splits_nothing() -> None:
    scalar = torch.tensor(1.0)

    assert parts(scalar, 1)[0] is scalar


def test_gradients_flow_into_the_whole() -> None:
    x = torch.ones(4, requires_grad=True)

    sum(part.sum() * (i + 1) for i, part in enumerate(parts(x))).backward()

    assert x.grad is not None
    assert x.grad.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            torch.zeros(10, 3),
            r"argument batch of shape \(10, 3\) has 10 entries along axis 0, .*=4",
        ),
        ({"x": [torch.zeros(6)]}, r"argument batch\['x'\]\[0\] of shape \(6,\)"),
        (torch.tensor(1.0), "argument batch has no dimension.*non_split_inputs"),
    ],
)
def test_what_does_not_divide_is_refused_with_its_name(value: Any, text: str) -> None:
    with pytest.raises(SMPValidationError, match=text):
        parts(value, 4)


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(SMPValidationError, match="has no axis 2"):
        parts(torch.zeros(4, 4), input_split_axes={"batch": 2})


def test_a_data_loader_is_refused_by_name() -> None:
    with pytest.raises(SMPValidationError, match="argument batch is a DataLoader"):
        parts(DataLoader([1, 2]), 1)  # type: ignore[arg-type]


def test_arguments_that_do_not_fit_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="batch"):
        InputSplit(step).split((None,), {}, 2)


# --- Results


def test_tensors_become_step_outputs_in_the_same_structure() -> None:
    outputs = [{"loss": torch.tensor(float(m)), "pair": Pair(torch.ones(1), m)} for m in range(3)]

    result = collect_outputs(outputs)

    assert [o.item() for o in result["loss"].outputs] == [0, 1, 2]
    assert isinstance(result["pair"], Pair)
    assert isinstance(result["pair"].left, StepOutput)
    assert result["pair"].right == [0, 1, 2]


def test_other_leaves_become_lists_and_none_stays_none() -> None:
    assert collect_outputs([0.5, 1.5]) == [0.5, 1.5]
    assert collect_outputs([None, None]) is None
    assert collect_outputs([None, 1]) == [None, 1]
    assert collect_outputs([("a", None), ("b", None)]) == (["a", "b"], None)
    assert collect_outputs([(), ()]) == ()


def test_model_outputs_keep_their_type_and_attributes() -> None:
    result = collect_outputs(
        [ModelOutput(loss=torch.tensor(1.0)), ModelOutput(loss=torch.tensor(3.0))]
    )

    assert type(result) is ModelOutput
    assert result["loss"].reduce_mean().item() == 2
    assert result.loss is result["loss"]


@pytest.mark.parametrize(
    "outputs",
    [
        [(torch.ones(1),), (torch.ones(1), torch.ones(1))],
        [{"a": 1}, {"b": 1}],
        [[1], 1],
        [{"a": [1]}, {"a": (1,)}],
    ],
)
def test_structures_that_differ_are_refused(outputs: list[Any]) -> None:
    with pytest.raises(SMPStepError, match="differs between microbatches"):
        collect_outputs(outputs)


def test_step_outputs_reduce() -> None:
    output = StepOutput([torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0])])

    assert output.reduce_mean().tolist() == [2, 4]
    assert output.reduce_sum().tolist() == [4, 8]
    assert output.concat().tolist() == [1, 2, 3, 6]
    assert output.stack().shape == (2, 2)


def test_step_outputs_of_integers_and_scalars_reduce() -> None:
    counts = StepOutput([torch.tensor(1), torch.tensor(2)])
    total = 0.0
    total += counts.reduce_mean()

    assert float(total) == 1.5
    assert counts.reduce_sum().item() == 3
    assert counts.concat().tolist() == [1, 2]


def test_step_outputs_may_have_batches_of_different_sizes() -> None:
    assert StepOutput([torch.zeros(2, 3), torch.zeros(1, 3)]).concat().shape == (3, 3)


@pytest.mark.parametrize("name", ["merge", "accumulate"])
def test_methods_of_tensorflow_are_refused(name: str) -> None:
    with pytest.raises(SMPUnsupportedError, match="TensorFlow"):
        getattr(StepOutput([]), name)()


def test_an_object_with_tensors_is_named_where_it_is_not_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Batch:
        def __init__(self) -> None:
            self.x, self.scale = torch.zeros(4, 2), torch.ones(())

    said: list[str] = []
    monkeypatch.setattr(log, "warning", said.append)
    inputs = InputSplit(lambda batch: None)

    inputs.split((Batch(),), {}, microbatches=1)
    assert not said
    inputs.split((Batch(),), {}, microbatches=2)

    assert len(said) == 1
    assert "argument batch is an object of class" in said[0] and "(x)" in said[0]

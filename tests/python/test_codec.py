# SPDX-License-Identifier: Apache-2.0
"""Trees of objects become bytes and tensors, and the same trees again."""

import pickle
from collections import OrderedDict

import pytest
import torch
from smdistributed.modelparallel.torch._objects import codec
from torch import nn

from tests.mpi.jobs.trees import (
    DTYPES,
    Options,
    Output,
    Pair,
    Point,
    alike,
    difference,
    objects_of,
    random_tree,
    tensors_of,
)

SEEDS = range(200)


def as_they_arrive(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors as a wire delivers them: the numbers, in memory of their own."""
    return [
        one.detach().resolve_conj().contiguous().clone().requires_grad_(one.requires_grad)
        for one in tensors
    ]


def test_random_trees_come_back_with_their_types_and_identities() -> None:
    for seed in SEEDS:
        tree = random_tree(seed)

        stub, tensors = codec.pack(tree)
        back = codec.unpack(stub, as_they_arrive(tensors))

        assert difference(tree, back) == "", seed
        assert {id(one) for one in tensors} == {id(one) for one in tensors_of(tree)}, seed
        assert len(tensors) == len(tensors_of(tree)), "each travels once"


def test_random_trees_hold_all_that_models_pass_around() -> None:
    trees = [random_tree(seed) for seed in SEEDS]
    objects = [one for tree in trees for one in objects_of(tree)]
    tensors = [one for one in objects if isinstance(one, torch.Tensor)]

    assert {list, tuple, dict, OrderedDict, Output, Options, Point, Pair} <= {*map(type, objects)}
    assert any(one is None for one in objects) and any(one is True for one in objects)
    assert {one.dtype for one in tensors} == {*DTYPES}
    assert {one.dim() for one in tensors} == {0, 1, 2, 3, 4}
    for holds in (
        lambda one: one.numel() == 0,
        lambda one: not one.is_contiguous(),
        lambda one: 0 in one.stride() and one.numel() > 1,
        lambda one: one.is_conj(),
        lambda one: one.requires_grad,
    ):
        assert 10 < sum(map(holds, tensors)) < len(tensors) - 10


def test_trees_that_differ_are_told_apart() -> None:
    x, y = torch.ones(2), torch.ones(2)

    assert difference([x, x], [y, y]) == ""
    assert "one object there" in difference([x, x], [y, torch.ones(2)])
    assert "one object there" in difference([x, y], [x, x])
    assert difference({"a": 1}, Options(a=1)) == "tree: dict and Options"
    assert difference(Output(a=1, b=2), Output(b=2, a=1)) == "tree: ['a'] ['b'] and ['b'] ['a']"
    assert difference(Point(True, None), Point(1, None)) == "tree[0]: bool and int"
    assert difference(Pair(x, [y]), Pair(x, [y.double()])).startswith("tree.right[0]: tensor")


def test_one_object_in_two_places_is_one_object_again() -> None:
    x, inner = torch.ones(2), {"n": None}
    tree = Output(first=x, inner=inner, pair=Pair(x, inner), point=Point(x, (inner,)))

    stub, tensors = codec.pack(tree)
    (arrived,) = as_they_arrive(tensors)
    back = codec.unpack(stub, [arrived])

    assert back.first is back.pair.left is back.point.x is arrived
    assert back.inner is back.pair.right is back.point.y[0]
    assert back.inner is not inner, "another object than the sender's"


def test_an_object_may_contain_itself() -> None:
    tree: dict[str, object] = {"x": torch.ones(1)}
    tree["self"] = tree

    back = codec.unpack(*codec.pack(tree))

    assert back["self"] is back


def test_views_of_one_memory_are_tensors_of_their_own() -> None:
    whole = torch.arange(4.0)
    tree = [whole, whole[1:], whole.view(2, 2)]

    stub, tensors = codec.pack(tree)

    assert [one is part for one, part in zip(tensors, tree, strict=True)] == [True] * 3
    back = codec.unpack(stub, as_they_arrive(tensors))
    assert all(alike(one, part) for one, part in zip(back, tree, strict=True))


def test_parameters_of_the_other_end_travel_by_name() -> None:
    there, own, x = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2)), torch.zeros(2)
    found = nn.Parameter(torch.ones(2))

    stub, tensors = codec.pack(
        {"there": [there, there], "own": own, "x": x},
        lambda parameter: "layer weight" if parameter is there else None,
    )
    back = codec.unpack(stub, tensors, {"layer weight": found}.__getitem__)

    assert [one is other for one, other in zip(tensors, [own, x], strict=True)] == [True, True]
    assert back["there"][0] is back["there"][1] is found
    with pytest.raises(pickle.UnpicklingError, match="parameter layer weight where none is"):
        codec.unpack(stub, tensors)


def test_what_cannot_be_pickled_is_refused() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        codec.pack({"x": torch.ones(1), "function": lambda: None})

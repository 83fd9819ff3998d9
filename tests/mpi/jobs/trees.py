# SPDX-License-Identifier: Apache-2.0
"""Random trees of objects and tensors, such as models pass around, and how two of them differ."""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import torch


class Output(OrderedDict):
    """As the outputs of Transformers: an attribute for each key."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Options(dict):
    pass


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Pair:
    left: Any
    right: Any


DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64,
          torch.complex128, torch.int64, torch.int32, torch.uint8, torch.bool)  # fmt: skip
SHAPES = ((), (1,), (5,), (0,), (0, 3), (2, 3), (2, 1, 3))
SCALARS = (None, True, False, 0, -1, 2**70, 0.5, 1j, "", "text", b"bytes", (), torch.float32,
           torch.Size([2, 3]), slice(1, None))  # fmt: skip


def random_tensor(generator: random.Random) -> torch.Tensor:
    """Tensor of any type, empty, of no dimension, or laid out in any way."""
    dtype, shape = generator.choice(DTYPES), generator.choice(SHAPES)
    numbers = [generator.randrange(4) for _ in range(math.prod(shape))]
    tensor = torch.tensor(numbers).view(shape).to(dtype)
    layout = generator.choice(("plain", "transposed", "every second", "expanded", "conjugate"))
    if layout == "transposed":
        tensor = tensor.permute(tuple(reversed(range(tensor.dim()))))
    elif layout == "every second" and tensor.dim() > 0:
        tensor = tensor[..., ::2]
    elif layout == "expanded":
        tensor = tensor.expand(2, *tensor.shape)
    elif layout == "conjugate":
        tensor = (tensor * 1j).conj() if dtype.is_complex else tensor.conj()
    if dtype.is_floating_point or dtype.is_complex:
        tensor.requires_grad_(generator.random() < 0.5)
    return tensor


def random_tree(seed: int) -> Any:
    """The same one in every process."""
    generator, made = random.Random(seed), []

    def tree(depth: int) -> Any:
        if made and generator.random() < 0.2:
            return generator.choice(made)  # one object in two places
        if depth == 0 or generator.random() < 0.3:
            if generator.random() < 0.4:
                return generator.choice(SCALARS)
            new = random_tensor(generator)
        else:
            new = container(generator, [tree(depth - 1) for _ in range(generator.randrange(4))])
        made.append(new)
        return new

    return [tree(4) for _ in range(3)]


def container(generator: random.Random, children: list[Any]) -> Any:
    names = {f"key {number}": child for number, child in enumerate(children)}
    two = (children[0], children[-1]) if children else (None, None)
    kinds: list[Callable[[], Any]] = [
        lambda: children,
        lambda: tuple(children),
        lambda: names,
        lambda: OrderedDict(reversed(names.items())),
        lambda: Output(reversed(names.items())),
        lambda: Options(names),
        lambda: Point(*two),
        lambda: Pair(*two),
    ]
    return generator.choice(kinds)()


def children_of(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", child) for key, child in value.items())
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        yield from ((f"[{index}]", child) for index, child in enumerate(value))
    elif is_dataclass(value):
        yield from ((f".{one.name}", getattr(value, one.name)) for one in fields(value))


def objects_of(tree: Any) -> list[Any]:
    """All that is in the tree: each once, however often it is there."""
    found: dict[int, Any] = {}

    def look(value: Any) -> None:
        if id(value) in found:
            return
        found[id(value)] = value
        for _, child in children_of(value):
            look(child)

    look(tree)
    return list(found.values())


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [one for one in objects_of(tree) if isinstance(one, torch.Tensor)]


def difference(one: Any, other: Any) -> str:
    """Place and kind of a difference between the trees, in types, values, order, or in which
    objects are one; empty where there is none."""
    partners: dict[int, Any] = {}  # by id, objects of `one` and of `other`

    def look(left: Any, right: Any, path: str) -> str:
        tensors = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)
        if not tensors and type(left) is not type(right):
            return f"{path}: {type(left).__name__} and {type(right).__name__}"
        below = list(children_of(left))
        if not tensors and not below:
            return "" if left == right else f"{path}: {left!r} and {right!r}"
        if id(left) in partners or id(right) in partners:
            one_pair = partners.get(id(left)) is right and partners.get(id(right)) is left
            return "" if one_pair else f"{path}: one object there, two here"
        partners[id(left)], partners[id(right)] = right, left
        if tensors:
            return "" if alike(left, right) else f"{path}: {left!r} and {right!r}"
        beside = list(children_of(right))
        names = [" ".join(name for name, _ in children) for children in (below, beside)]
        if names[0] != names[1]:
            return f"{path}: {names[0]} and {names[1]}"
        pairs = zip(below, beside, strict=True)
        found = (look(mine, yours, path + name) for (name, mine), (_, yours) in pairs)
        return next(filter(None, found), "")

    return look(one, other, "tree")


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        (one.dtype, one.shape, one.device, one.requires_grad)
        == (other.dtype, other.shape, other.device, other.requires_grad)
    ) and torch.equal(one, other)

# SPDX-License-Identifier: Apache-2.0
"""Translates state dicts between a model of Hugging Face and its distributed counterpart.

A table pairs the names of both. Where a plain tensor is several distributed ones (GPT-2 keeps
query, key and value in one), these are its equal parts along the last axis; where the plain layer
keeps its weight as [in, out], as ``Conv1D`` does, the parts are transposed. All values are whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError


@dataclass(frozen=True)
class Pair:
    """A plain name and the distributed names of its parts, ``weight`` and ``bias`` left out."""

    plain: str
    split: tuple[str, ...]
    transposed: bool = False
    kinds: tuple[str, ...] = ("weight", "bias")


def linear(plain: str, *split: str, bias: bool = True) -> Pair:
    """A ``torch.nn.Linear``, or anything else whose tensors are the same on both sides."""
    return Pair(plain, split, kinds=("weight", "bias") if bias else ("weight",))


def conv1d(plain: str, *split: str) -> Pair:
    """A layer of Hugging Face's ``Conv1D``, weight [in, out]."""
    return Pair(plain, split, transposed=True)


@dataclass(frozen=True)
class NameTable:
    """The names of one kind of model.

    ``layers`` are pairs within a layer, which is ``plain_layer`` number ``.`` on one side and
    ``split_layer`` number ``.`` on the other; ``others`` are pairs outside of layers. ``dropped``
    matches plain names of buffers without a distributed counterpart.
    """

    layers: tuple[Pair, ...]
    plain_layer: str
    split_layer: str
    others: tuple[Pair, ...] = ()
    dropped: str = r"(?!)"

    def to_split(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Distributed names from plain ones. Names that the table does not know stay.

        Raises SMPCheckpointError for a tensor that does not divide into its parts.
        """
        left = {key: value for key, value in entries.items() if not re.search(self.dropped, key)}
        made: dict[str, Any] = {}
        for pair, kind, plain, split in self._names(entries, self.plain_layer):
            if plain not in left:
                continue
            value = left.pop(plain)
            if value.shape[-1] % len(split) != 0:
                raise SMPCheckpointError(
                    f"{plain} has shape {tuple(value.shape)}; expected a last axis that divides "
                    f"into {len(split)} equal parts"
                )
            turned = pair.transposed and kind == "weight"
            for name, part in zip(split, value.chunk(len(split), dim=-1), strict=True):
                # Copies, so that none keeps the memory of its neighbours.
                made[name] = part.t().contiguous() if turned else _own(part, value)
        return {**left, **made}

    def to_plain(self, entries: Mapping[str, Any]) -> dict[str, Any]:
        """Plain names from distributed ones. Names that the table does not know stay.

        Raises SMPCheckpointError where some parts of a tensor are missing.
        """
        left, made = dict(entries), {}
        for pair, kind, plain, split in self._names(entries, self.split_layer):
            there = [name for name in split if name in left]
            if not there:
                continue
            if len(there) < len(split):
                missing = ", ".join(name for name in split if name not in left)
                raise SMPCheckpointError(f"{plain} cannot be put together: {missing} is missing")
            parts = [left.pop(name) for name in split]
            if pair.transposed and kind == "weight":
                parts = [part.t().contiguous() for part in parts]
            made[plain] = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        return {**left, **made}

    def _names(
        self, entries: Iterable[str], layer: str
    ) -> Iterator[tuple[Pair, str, str, tuple[str, ...]]]:
        """Each pair with the names that it has in every layer of ``entries``."""
        for prefixes, pairs in ((("", ""), self.others), *self._layers(entries, layer)):
            for pair in pairs:
                for kind in pair.kinds:
                    yield (
                        pair,
                        kind,
                        f"{prefixes[0]}{pair.plain}.{kind}",
                        tuple(f"{prefixes[1]}{part}.{kind}" for part in pair.split),
                    )

    def _layers(
        self, entries: Iterable[str], layer: str
    ) -> Iterator[tuple[tuple[str, str], tuple[Pair, ...]]]:
        matches = (re.match(re.escape(layer) + r"(\d+)\.", key) for key in entries)
        for number in sorted({int(match[1]) for match in matches if match}):
            yield (f"{self.plain_layer}{number}.", f"{self.split_layer}{number}."), self.layers


def _own(part: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    return part if part.shape == whole.shape else part.contiguous().clone()

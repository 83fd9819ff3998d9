# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of ``torch.distributed.checkpoint`` (DCP), as a plain script saved it, under the
names of this job's model."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from smdistributed.modelparallel.torch._checkpoint.dcp_content import GROUPS, STATE, same
from smdistributed.modelparallel.torch._files.checkpoint_kinds import Dcp
from smdistributed.modelparallel.torch._files.dcp_entries import Below, DcpEntries
from smdistributed.modelparallel.torch._files.dcp_places import readable
from smdistributed.modelparallel.torch._files.verification import problems_of
from smdistributed.modelparallel.torch._state.lazy_values import LazyValues
from smdistributed.modelparallel.torch._state.optimizer_states import OptimizerStates
from smdistributed.modelparallel.torch._state.own_entries import OwnEntries
from smdistributed.modelparallel.torch._state.state_fit import (
    OptimizerState,
    check_kind,
    check_optimizer,
)
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.modelparallel.torch.model import DistributedModel


class DcpState:
    """``model_key`` and ``optimizer_key``: as of ``smp.load_dcp``.

    Raises SMPCheckpointError for what is no such checkpoint, or where nothing is found.
    """

    def __init__(
        self,
        folder: Path,
        model: DistributedModel,
        model_key: str | None,
        optimizer_key: str | None,
    ) -> None:
        folder = readable(folder)
        self.where, self._model, self._optimizer_key = str(folder), model, optimizer_key
        self._folder, self._entries = folder, DcpEntries(folder)
        prefix = self._model_prefix() if model_key is None else _prefix(model_key)
        tensors = [name for name in self._entries.likes if name.startswith(prefix)]
        named = {name.removeprefix(prefix): name for name in tensors}
        if not prefix:  # what is beside the model at the top
            known = self._known_names()
            named = {name: place for name, place in named.items() if name in known}
        saved = Below(self._entries, named)
        self._own = model.own_entries(saved, saved.likes, tied_once=True)
        self._shapes = {name: tuple(like.shape) for name, like in saved.likes.items()}
        self.settings: list[dict[str, Any]] = []
        """Of each group of this job's optimizer."""
        self.kept: Mapping[str, Mapping[str, Any]] = {}
        """What was kept for each parameter, by this job's name, read as it is looked at."""

    def check_files(self, number: int, of: int) -> None:
        """Reads the files, of ``of`` ranks this one's share. Raises SMPCheckpointError."""
        files = Dcp(self._folder)
        if problems := problems_of(self._folder, files, files.names[number::of]):
            raise SMPCheckpointError("\n".join(f"{self._folder}/{one}" for one in problems))

    def check_model(self, *, strict: bool) -> None:
        """Raises SMPCheckpointError where it is another model's."""
        self._model.check_entries(self._own.shapes, self.where, strict, whole=True)

    def load_model(self, *, strict: bool) -> None:
        self._model.load_own(self._own, self.where, strict)

    def _known_names(self) -> list[str]:
        """Names of the plain model, or of this one where they are the same."""
        return [*self._model.plain.names] or [*self._model.entry_layouts()]

    def _model_prefix(self) -> str:
        """The text in front of the names of the model's entries."""
        wanted = self._known_names()
        counts: dict[str, int] = {}
        for one in wanted:
            for name in self._entries.likes:
                if name == one or name.endswith(f".{one}"):
                    prefix = name.removesuffix(one)
                    counts[prefix] = sum(prefix + other in self._entries.likes for other in wanted)
            if counts:
                break
        best = sorted(prefix for prefix, count in counts.items() if count == max(counts.values()))
        if len(best) == 1:
            return best[0]
        if best:
            raise SMPCheckpointError(
                f"{self.where} has the model in several places: {', '.join(map(repr, best))}; say "
                "which by model_key"
            )
        there = list(self._entries.likes)
        raise SMPCheckpointError(
            f"{self.where} is of another model: it has no {wanted[0]} and no other of its "
            f"{len(wanted)} entries; there are {', '.join(there[:8]) or 'no tensors'}"
        )

    # --- The optimizer ---

    def check_optimizer(self, states: OptimizerStates) -> None:
        """Finds ``settings`` and ``kept`` for the optimizer of ``states``. Raises
        SMPCheckpointError where they are another one's."""
        prefix = self._optimizer_prefix()
        own = states.described(whole=True)
        fields, others = self._fields(f"{prefix}{STATE}.")
        values = {field: self._model.own_entries(some, some.likes, tied_once=True)
                  for field, some in fields.items()}  # fmt: skip
        groups = self._groups(f"{prefix}{GROUPS}.", own)
        if len(groups) != len(own.groups):
            raise SMPCheckpointError(
                f"the optimizer state in {self.where} has {len(groups)} groups of parameters, here "
                f"are {len(own.groups)}; make the optimizer with as many, or leave it out"
            )
        names = [name for group in own.groups for name in group]
        saved = OptimizerState(
            kind=own.kind,  # compared group by group
            groups=self._members([members for _, members in groups], names),
            settings=[],
            fields=(),
            shapes=self._own.shapes,
            held={name: {field: of.shapes[name] for field, of in values.items() if name in of}
                  for name in names},
        )  # fmt: skip
        check_optimizer(saved, own, self.where)
        for (settings, members), of_group in zip(groups, states.described_groups(), strict=True):
            held = {field for field, of in fields.items() if any(one in of for one in members)}
            held.update(key for one in members for key in others.get(one, ()))
            check_kind(dataclasses.replace(saved, kind="", settings=[settings], fields=held),
                       of_group, self.where)  # fmt: skip
        both = zip(states.settings(), groups, strict=True)
        self.settings = [{**here, **settings} for here, (settings, _) in both]
        self.kept = _kept(values, {name: self._of_sources(name, others) for name in names})

    def _optimizer_prefix(self) -> str:
        found = sorted({name[: match.start()] for name in self._entries
                        if (match := re.search(rf"(?<![^.]){GROUPS}\.", name))})  # fmt: skip
        if self._optimizer_key is not None:
            found = [prefix for prefix in found if prefix == _prefix(self._optimizer_key)]
        if len(found) == 1:
            return found[0]
        how = f"in several places: {', '.join(map(repr, found))}; say which by optimizer_key"
        raise SMPCheckpointError(
            f"{self.where} has the state of an optimizer {how}" if found else
            f"{self.where} has no state of an optimizer: nothing in it is below "
            f"{_prefix(self._optimizer_key or '')}{GROUPS}; leave the optimizer out"
        )  # fmt: skip

    def _fields(self, prefix: str) -> tuple[dict[str, Below], dict[str, dict[str, Any]]]:
        """What is kept for each element of parameters, by field; and other things, by name."""
        fields: dict[str, dict[str, str]] = {}
        others: dict[str, dict[str, Any]] = {}
        for place in self._entries:
            if not place.startswith(prefix):
                continue
            name, _, field = place.removeprefix(prefix).rpartition(".")
            like, shape = self._entries.likes.get(place), self._shapes.get(name)
            if shape is None:
                raise SMPCheckpointError(
                    f"{self.where} has {place}, and {name} is no parameter of the model in it"
                )
            if like is not None and like.dim() > 0 and like.shape == shape:
                fields.setdefault(field, {})[name] = place
            elif like is not None and like.numel() > 1:
                raise SMPCheckpointError(
                    f"{self.where} is of another model: {field} of parameter {name} has shape "
                    f"{tuple(like.shape)} there, and the parameter {shape}"
                )
            else:
                others.setdefault(name, {})[field] = self._entries[place]
        return {field: Below(self._entries, names) for field, names in fields.items()}, others

    def _groups(self, prefix: str, own: OptimizerState) -> list[tuple[dict[str, Any], list[str]]]:
        """Settings of each group, and the names of its parameters there."""
        listed: dict[int, dict[str, Any]] = {}
        flat: dict[str, dict[str, Any]] = {}
        is_list = f"{prefix}0.params" in self._entries
        for place in self._entries:
            if not place.startswith(prefix):
                continue
            rest = place.removeprefix(prefix)
            number, _, setting = rest.partition(".")
            if is_list and number.isdigit() and "." not in setting:
                listed.setdefault(int(number), {})[setting] = self._entries[place]
            elif not is_list:
                name, _, setting = rest.rpartition(".")
                flat.setdefault(name, {})[setting] = self._entries[place]
        if is_list:
            for at, group in listed.items():
                if "params" not in group:
                    raise SMPCheckpointError(f"{self.where} has no {prefix}{at}.params")
            return [(group, list(group.pop("params"))) for _, group in sorted(listed.items())]
        groups = []
        for names in own.groups:
            members = [one for name in names if name in self._own
                       for one in sorted(self._own.sources(name)) if one in flat]  # fmt: skip
            first = flat[members[0]] if members else {}
            for one in members:
                if flat[one] != first:
                    raise SMPCheckpointError(
                        f"{self.where} has other settings of the optimizer for {one} than for "
                        f"{members[0]}, which are in one group here: {flat[one]} and {first}"
                    )
            groups.append((first, list(dict.fromkeys(members))))
        if groups:  # those of none of this job's parameters, which the comparison names
            groups[-1][1].extend(flat.keys() - {one for _, names in groups for one in names})
        return groups

    def _members(self, groups: list[list[str]], names: list[str]) -> list[list[str]]:
        """The parameters of each saved group, by this job's names where it has them."""
        number_of = {name: number for number, group in enumerate(groups) for name in group}
        members: list[list[str]] = [[] for _ in groups]
        taken = set[str]()
        for name in names:
            sources = self._own.sources(name) if name in self._own else frozenset()
            numbers = {number_of[one] for one in sources if one in number_of}
            if len(numbers) == 1:
                members[numbers.pop()].append(name)
                taken |= sources
        for name, number in number_of.items():
            if name not in taken:
                members[number].append(name)
        return members

    def _of_sources(self, name: str, others: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """What is kept beside fields for a parameter that is made of others: alike for all."""
        sources = sorted(self._own.sources(name))
        first = others.get(sources[0], {}) if sources else {}
        for one in sources[1:]:
            if not same(others.get(one, {}), first):
                raise SMPCheckpointError(
                    f"{self.where} keeps {others.get(one)} for {one} and {first} for {sources[0]}, "
                    f"of which {name} is made here: there is no one value for it"
                )
        return first


def _kept(fields: Mapping[str, OwnEntries], others: Mapping[str, Mapping[str, Any]]) -> LazyValues:
    """By parameter of which anything is kept: this rank's slices of ``fields``, and copies of
    ``others``."""

    def of(name: str) -> dict[str, Any]:
        kept = {key: value.clone() if isinstance(value, torch.Tensor) else value
                for key, value in others[name].items()}  # fmt: skip
        return kept | {field: values[name] for field, values in fields.items() if name in values}

    names = [name for name, kept in others.items()
             if kept or any(name in values for values in fields.values())]  # fmt: skip
    return LazyValues(names, of)


def _prefix(key: str) -> str:
    return f"{key}." if key else ""

# SPDX-License-Identifier: Apache-2.0
"""Calls to modules of other partitions as messages, and what they do besides returning.

A call's message has the call, and, where there are any: the context variables and attributes that
its module is to see, and the objects in all of these that can change, numbered. The owner compares
those with what they are after the call. Only if something has changed, its reply says what and to
what: objects by their numbers, so that the caller's objects change and remain the same ones, and
tensors as further results of the call, which have gradients.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._objects import codec
from smdistributed.modelparallel.torch._objects.object_states import (
    ObjectState,
    become,
    is_same,
    state_of,
)
from smdistributed.modelparallel.torch._objects.remote_tensors import (
    Description,
    RemoteTensor,
    remote_tensor,
)
from smdistributed.modelparallel.torch._pipeline import context_values
from smdistributed.modelparallel.torch._pipeline.attribute_writes import (
    Gone,
    begin_account,
    current_account,
)
from smdistributed.modelparallel.torch._pipeline.call_changes import Changes, Modules
from smdistributed.modelparallel.torch._ranks.log import warn_once
from smdistributed.modelparallel.torch.exceptions import SMPStepError

#: A call: positional and keyword arguments, its region, and whether it comes from an earlier module
#: of a route, so that its arguments are nobody else's.
Request = tuple[tuple[Any, ...], tuple[tuple[str, Any], ...], Any, bool]
Message = tuple[bytes, list[torch.Tensor]]


class SentCall:
    """The caller's end of a call."""

    def __init__(
        self,
        modules: Modules,
        called: Sequence[nn.Module],
        request: Request,
        step_context: contextvars.Context,
        remote_name: codec.RemoteName,
    ) -> None:
        """Raises one of ``codec.REFUSALS`` for an argument that cannot be pickled."""
        self._modules, self._account = modules, current_account()
        self._objects: list[Any] = []
        self._writer = codec.Writer(remote_name, self._objects)
        self._writer.dump(request)
        contexts = _values(context_values.changed_since(step_context))
        written = self._account.attributes and self._account.below(modules.below(called))
        if self._objects or contexts or written:
            _add(self._writer, contexts, modules.values(written or ()), None, None)
        self._numbered = len(self._objects)

    def result(self, exchange: Callable[[bytes, list[torch.Tensor]], Message]) -> Any:
        """Result of the call that ``exchange`` makes; what the call has changed is changed here,
        too."""
        given = self._writer.tensors
        own = self._account.values()
        definition, tensors = exchange(*self._writer.message())
        for attribute, value in own:
            attribute.put(value)
        known = self._objects[: self._numbered]
        reader = codec.Reader(definition, tensors, known=known, given=given)
        result = reader.load()
        if reader.more():
            self._apply(reader.load())
        return result

    def _apply(self, changes: Changes) -> None:
        _set_contexts(changes.contexts)
        self._modules.put(changes.attributes, self._account)
        for number, state in changes.objects.items():
            become(self._objects[number], state)
        for index, value in changes.tensors.items():
            tensor = self._writer.tensors[index]
            if isinstance(tensor, RemoteTensor):
                tensor.become(value)
            else:
                tensor.copy_(value)


class ServedCall:
    """The owner's end of a call. Made in the context in which the module is to run."""

    def __init__(
        self,
        modules: Modules,
        served: str,
        definition: bytes,
        tensors: list[torch.Tensor],
        find: codec.ParameterFinder,
    ) -> None:
        """``served`` says what is called, and where it lives."""
        self._modules, self._served, self._tensors = modules, served, tensors
        reader = codec.Reader(definition, tensors, find, described=_remote_tensor)
        self.request: Request = reader.load()
        self._contexts: dict[context_values.Place, Any] = {}
        self._earlier = Changes()
        self._objects: list[Any] = []
        self._numbered = 0
        if reader.more():
            self._contexts = dict(reader.load())
            attributes, earlier, numbered = reader.load()
            self._objects = reader.load()
            self._numbered = len(self._objects) if numbered is None else numbered
            self._earlier = earlier or self._earlier
            _set_contexts(self._contexts | self._earlier.contexts)
            modules.put(dict(attributes) | self._earlier.attributes)
        self._account = begin_account()
        self._context = contextvars.copy_context()
        self._states = [state_of(obj) for obj in self._objects[: self._numbered]]
        self._versions = [tensor._version for tensor in tensors]

    def reply(self, result: Any) -> Message:
        """To the caller. Raises one of ``codec.REFUSALS`` for a result that cannot be pickled."""
        return self._message(result, self._written)

    def next_request(self, result: Any) -> Message:
        """To the route's next module, whose one argument ``result`` is. Raises as ``reply``."""
        return self._message(((result,), (), None, True), self._passed_on)

    def _message(self, tree: Any, write: Callable[[Any, Changes], Message]) -> Message:
        changes = self._changes()
        try:
            return write(tree, changes)
        except codec.REFUSALS:
            self._name_what_stays(changes)
            return write(tree, changes)

    def _written(self, result: Any, changes: Changes) -> Message:
        writer = codec.Writer(objects=self._objects[: self._numbered], knows=True)
        writer.dump(result)
        if changes:
            if not self._passes_through:
                writer.given = {
                    id(tensor): index
                    for index, tensor in enumerate(self._tensors)
                    if index not in changes.tensors
                }
            writer.dump(changes)
        return writer.message()

    def _passed_on(self, request: Request, changes: Changes) -> Message:
        writer = codec.Writer(objects=self._objects)
        writer.dump(request)
        if self._objects or self._contexts or changes:
            _add(writer, self._contexts, {}, changes, self._numbered)
        return writer.message()

    @property
    def _passes_through(self) -> bool:
        return self.request[3]

    def _changes(self) -> Changes:
        changes = Changes(
            contexts=_values(context_values.changed_since(self._context)),
            attributes=self._modules.values(self._account.attributes.values()),
        )
        for number, before in enumerate(self._states):
            after = None if before is None else state_of(self._objects[number])
            if before is not None and after is not None and not is_same(before, after):
                changes.objects[number] = self._changed(self._objects[number], before, after)
        if not self._passes_through:
            changes.tensors = {
                index: tensor
                for index, tensor in enumerate(self._tensors)
                if tensor._version != self._versions[index]
            }
        return self._earlier | changes

    def _changed(self, obj: Any, before: ObjectState, after: ObjectState) -> ObjectState:
        if is_same(before.made_with, after.made_with):
            return after
        raise SMPStepError(
            f"{self._served} changes an object that it is given, of class "
            f"{type(obj).__qualname__}, in a way that cannot be done to its caller's: return what "
            "it has to say, or keep both modules on one partition with smp.set_partition"
        )

    def _name_what_stays(self, changes: Changes) -> None:
        """Attributes are mostly the module's own affair, so one that cannot travel is named, and
        taken from the caller; all else stops the step."""
        for name, value in self._modules.named(changes):
            try:
                codec.pack(value)
            except codec.REFUSALS as error:
                raise SMPStepError(
                    f"{self._served} changes {name}, and that cannot travel to its caller on "
                    f"another partition: {error}. Return what it has to say, or keep both modules "
                    "on one partition with smp.set_partition"
                ) from error
        for (number, name), value in changes.attributes.items():
            try:
                codec.pack(value)
            except codec.REFUSALS as error:
                changes.attributes[number, name] = Gone
                warn_once(
                    f"{self._served}: module {self._modules.names[number]} sets its attribute "
                    f"{name}, and that cannot travel to its caller on another partition, which "
                    f"has no attribute {name} from now on: {error}. Return what others are to know"
                )


def _add(
    writer: codec.Writer,
    contexts: dict[context_values.Place, Any],
    attributes: dict[tuple[int, str], Any],
    earlier: Changes | None,
    numbered: int | None,
) -> None:
    """Writes what goes with a call. Tensors that a recorder has collected stay: they are many, and
    of no use to the code that adds to them. Objects are numbered up to ``numbered``, or all."""
    writer.leaves_tensors = True
    writer.dump(tuple(contexts.items()))
    writer.leaves_tensors = False
    writer.dump((tuple(attributes.items()), earlier, numbered))
    writer.dump(writer.objects)


def _values(variables: Iterable[contextvars.ContextVar[Any]]) -> dict[context_values.Place, Any]:
    return {context_values.place_of(variable): variable.get() for variable in variables}


def _set_contexts(values: dict[context_values.Place, Any]) -> None:
    for place, value in values.items():
        context_values.variable_at(place).set(value)


def _remote_tensor(description: Description) -> torch.Tensor:
    return remote_tensor(
        description,
        "a tensor in a context variable was looked at by a module of another partition, which does "
        "not have it: hand it to the module as an argument",
    )

# SPDX-License-Identifier: Apache-2.0
"""Parameters without storage: what would have been done to them is noted, and done on their owner.

Inside the context, uninitialised tensors (``torch.empty``, of which torch's and Hugging Face's
layers make their parameters) have a shape but no memory. Every operation on them is put on a tape.
When the partition is known, each rank replays what its own parameters need: at once, or, where a
rank keeps a shard of each, one parameter after the other.

Random numbers are those of the construction without delay, bit by bit: draws for parameters of
other partitions are made, too, and thrown away. That holds as long as nothing else draws inside the
context; if something does, the replay uses numbers of its own, the same on every rank. The default
generator itself is not advanced by what is delayed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from smdistributed.modelparallel.torch._delayed.delayed_operation import (
    Operation,
    Place,
    is_random,
    noted_init,
    run_operation,
)
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError

_EMPTY = (torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default)


class _Tape:
    """The operations of all contexts since the last replay, and the generator's states."""

    def __init__(self) -> None:
        self.operations: list[Operation | torch.Tensor] = []  # a tensor: the generator's new state
        self.other_draws = False
        self._numbers: dict[int, int] = {}
        """Numbers of storages by address, in the order of their first use: equal on all ranks."""
        self._kept: list[Any] = []  # so that no address is used twice
        self._state: torch.Tensor | None = None
        """State of the generator when last seen; delayed operations do not change the generator."""
        self.seed = torch.initial_seed()
        """Seed of random numbers of our own, where others drew inside."""
        self.writes: Counter[int] = Counter()
        """Number of writes to each storage since it was made."""

    def leave(self) -> None:
        self._state = torch.get_rng_state()

    def notice_seed(self) -> None:
        """A script may have seeded the generator, before the context or inside."""
        now = torch.get_rng_state()
        if self._state is None or not torch.equal(now, self._state):
            self.operations.append(now)
            self._state = now

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Number of the storage of ``tensor``, if it was used here."""
        return self._numbers.get(tensor.untyped_storage()._cdata)

    def place(self, tensor: torch.Tensor) -> Place:
        storage = tensor.untyped_storage()
        number = self._numbers.setdefault(storage._cdata, len(self._kept))
        if number == len(self._kept):
            self._kept.append(storage)
        return Place(
            number,
            tuple(tensor.size()),
            tuple(tensor.stride()),
            int(tensor.storage_offset()),
            tensor.dtype,
            storage.nbytes(),
        )

    def note(self, function: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        def placed(tree: Any) -> Any:
            return tree_map_only(
                torch.Tensor, lambda t: self.place(t) if t.is_meta else t.detach(), tree
            )

        before = len(self._kept)
        results = [
            self.place(leaf) if isinstance(leaf, torch.Tensor) and leaf.is_meta else None
            for leaf in tree_leaves(result)
        ]
        if function not in _EMPTY:
            self.writes.update(range(before, len(self._kept)))
        operation = Operation(function, placed(args), placed(kwargs), results, is_random(function))
        if operation.random:
            self.notice_seed()
        operation.reads = {
            p.storage for p in tree_leaves((operation.args, operation.kwargs))
            if isinstance(p, Place)
        }  # fmt: skip
        operation.writes = {place.storage for place in results if place is not None}
        for argument, value in zip(function._schema.arguments, operation.args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                written = {p.storage for p in tree_leaves(value) if isinstance(p, Place)}
                operation.writes |= written
                self.writes.update(written)
        self.operations.append(operation)

    def note_whole(
        self, function: Any, tensor: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """A function that draws and writes to ``tensor``, as one operation."""
        self.notice_seed()
        place = self.place(tensor)
        written = {place.storage}
        self.writes.update(written)
        self.operations.append(
            Operation(function, (place, *args), kwargs, [place], True, written, written)
        )

    def replay(self, wanted: set[int], take: Callable[[int, torch.UntypedStorage], None]) -> None:
        """Does what was deferred. ``take`` gets each storage of ``wanted`` as soon as nothing is
        left to do with it; what it does not keep is free then.

        Raises KeyError for a storage that is not made on the tape, or of which another one is made.
        """
        finished = self._finished_by_operation(wanted)
        made: dict[int, torch.UntypedStorage] = {}
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            if self.other_draws:
                torch.manual_seed(self.seed ^ 0x5EED)
            for number, operation in enumerate(self.operations):
                if isinstance(operation, torch.Tensor):
                    if not self.other_draws:
                        torch.set_rng_state(operation)
                elif number in finished:
                    run_operation(operation, made)
                    for storage in finished[number]:
                        memory = made.pop(storage)
                        if storage in wanted:
                            take(storage, memory)
                elif operation.random and not self.other_draws:
                    run_operation(operation, {})  # in memory of its own, for the numbers it draws

    def _finished_by_operation(self, wanted: set[int]) -> dict[int, list[int]]:
        """The operations that ``wanted`` needs, and which storages nothing behind them uses."""
        finished: dict[int, list[int]] = {}
        needed, seen, made = set(wanted), set[int](), set[int]()
        for number in range(len(self.operations) - 1, -1, -1):
            operation = self.operations[number]
            if isinstance(operation, Operation) and operation.writes & needed:
                needed |= operation.reads
                made |= operation.writes - operation.reads
                used = operation.reads | operation.writes
                finished[number] = sorted(used - seen)
                seen |= used
        if missing := needed - made:
            raise KeyError(missing.pop())
        return finished


class _Delay(TorchDispatchMode):
    def __init__(self, tape: _Tape) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tape = tape

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _EMPTY and _is_delayed(kwargs):
            result = func(*args, **{**kwargs, "device": torch.device("meta")})
            self._tape.note(func, args, kwargs, result)
            return result
        leaves = tree_leaves((args, kwargs))
        if not any(isinstance(leaf, torch.Tensor) and leaf.is_meta for leaf in leaves):
            self._tape.other_draws |= is_random(func)
            return func(*args, **kwargs)
        try:
            result = func(*args, **kwargs)
        except (NotImplementedError, RuntimeError) as error:
            raise SMPUnsupportedError(
                f"the model's construction reads a parameter ({func}) whose initialization is "
                f"delayed, so that it has no value yet; build this model without delay: {error}"
            ) from error
        self._tape.note(func, args, kwargs, result)
        return result


def _is_delayed(kwargs: dict[str, Any]) -> bool:
    device, dtype = kwargs.get("device"), kwargs.get("dtype") or torch.get_default_dtype()
    on_cpu = device is None or torch.device(device).type == "cpu"
    return on_cpu and dtype.is_floating_point and not kwargs.get("pin_memory")


_tape: _Tape | None = None


@contextmanager
def delayed() -> Iterator[None]:
    """Inside, parameters are made without storage."""
    global _tape  # noqa: PLW0603 - the contexts of a script make one sequence
    _tape = tape = _tape or _Tape()
    tape.notice_seed()
    try:
        with noted_init(tape.note_whole), _Delay(tape):
            yield
    finally:
        tape.leave()


def has_delayed(module: nn.Module) -> bool:
    """True if parameters or buffers of ``module`` have no storage yet."""
    return any(t.is_meta for t in (*module.parameters(), *module.buffers()))


def writes_to(tensor: torch.Tensor) -> int | None:
    """Number of operations that have written to a parameter without storage since it was allocated;
    None if the contexts did not make it.

    >>> with delayed():
    ...     layer = nn.Linear(2, 2)
    >>> writes_to(layer.weight)
    1
    >>> materialize(layer, [])
    """
    number = None if _tape is None else _tape.number_of(tensor)
    return None if _tape is None or number is None else _tape.writes[number]


def draws() -> tuple[list[torch.Tensor], int]:
    """The generator's states that a replay would begin from, and the seed where it cannot."""
    if _tape is None:
        return [], 0
    return [one for one in _tape.operations if isinstance(one, torch.Tensor)], _tape.seed


def draw_from(states: list[torch.Tensor], seed: int) -> None:
    """Has a replay draw the numbers of another rank, whose ``draws`` these are."""
    if _tape is not None:
        given = iter(states)
        _tape.operations = [
            next(given) if isinstance(one, torch.Tensor) else one for one in _tape.operations
        ]
        _tape.seed = seed


def materialize(module: nn.Module, local: Iterable[nn.Module]) -> None:
    """Gives parameters and buffers of the modules of ``local`` their values; parameters stay the
    same objects. Those of other modules get one element that stands for all.

    Raises SMPUnsupportedError for a tensor without storage that the contexts did not make.

    >>> torch.manual_seed(0) and None
    >>> eager = nn.Linear(2, 3)
    >>> torch.manual_seed(0) and None
    >>> with delayed():
    ...     layer = nn.Linear(2, 3)
    >>> layer.weight.is_meta
    True
    >>> materialize(layer, [layer])
    >>> torch.equal(layer.weight, eager.weight) and torch.equal(layer.bias, eager.bias)
    True
    """
    tape = _take_tape()
    of_owners = [
        tensor
        for owner in local
        for tensor in (*owner._parameters.values(), *owner._buffers.values())
        if tensor is not None and tensor.is_meta
    ]
    values = _values(tape, of_owners)
    _fill_parameters(module, values, torch.device("cpu"))
    _fill_buffers(module, values)


class DeferredInitialization:
    """Parameters of a module whose values are made later, one after the other. Until then one
    element stands for all of a parameter's; buffers have their values at once.

    >>> torch.manual_seed(0) and None
    >>> eager = nn.Linear(2, 3)
    >>> torch.manual_seed(0) and None
    >>> with delayed():
    ...     layer = nn.Linear(2, 3)
    >>> deferred = DeferredInitialization(layer, torch.device("cpu"))
    >>> layer.weight.shape, layer.weight.untyped_storage().nbytes()
    (torch.Size([3, 2]), 4)
    >>> deferred.make(lambda parameter, value: print(parameter is layer.weight, tuple(value.shape)))
    True (3, 2)
    False (3,)
    """

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self._tape = _take_tape()
        buffers = [buffer for buffer in module.buffers() if buffer.is_meta]
        self._of_storage: dict[int, list[tuple[nn.Parameter, Place]]] = {}
        for parameter in module.parameters():
            if parameter.is_meta:
                place = self._tape.place(parameter)
                self._of_storage.setdefault(place.storage, []).append((parameter, place))
        _fill_buffers(module, _values(self._tape, buffers) if buffers else {})
        _fill_parameters(module, {}, device)
        self.parameters = {p for shared in self._of_storage.values() for p, _ in shared}

    def make(self, take: Callable[[nn.Parameter, torch.Tensor], None]) -> None:
        """``take`` gets each parameter with its value on the CPU, and keeps what it wants: memory
        is that of one parameter, and of what was made from it or for it, at a time. In the same
        order wherever the same was deferred."""

        def take_all(storage: int, memory: torch.UntypedStorage) -> None:
            for parameter, place in self._of_storage[storage]:
                take(parameter, _at(place, memory))

        with _explained():
            self._tape.replay(set(self._of_storage), take_all)


def _take_tape() -> _Tape:
    global _tape
    tape, _tape = _tape or _Tape(), None
    return tape


def _at(place: Place, memory: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=place.dtype).set_(memory, place.offset, place.size, place.stride)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise SMPUnsupportedError(
            "the model has parameters on the meta device that smp.delay_param_initialization did "
            "not make, so their values are not known; build it inside that context alone"
        ) from error


def _values(tape: _Tape, tensors: list[torch.Tensor]) -> dict[torch.Tensor, torch.Tensor]:
    places = {tensor: tape.place(tensor) for tensor in tensors}
    storages: dict[int, torch.UntypedStorage] = {}
    with _explained():
        tape.replay({place.storage for place in places.values()}, storages.__setitem__)
    return {tensor: _at(place, storages[place.storage]) for tensor, place in places.items()}


def _placeholder(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.full((), float("nan"), dtype=tensor.dtype, device=device).expand(tensor.shape)


def _fill_parameters(
    module: nn.Module, values: dict[torch.Tensor, torch.Tensor], device: torch.device
) -> None:
    for parameter in list(module.parameters()):
        if parameter.is_meta:
            own = values.get(parameter)
            filled = _placeholder(parameter, device) if own is None else own
            value = nn.Parameter(filled, parameter.requires_grad)
            value.__dict__.update(parameter.__dict__)
            torch.utils.swap_tensors(parameter, value)


def _fill_buffers(module: nn.Module, values: dict[torch.Tensor, torch.Tensor]) -> None:
    for owner in module.modules():
        for name, buffer in owner._buffers.items():
            if buffer is not None and buffer.is_meta:
                own = values.get(buffer)
                owner._buffers[name] = (
                    _placeholder(buffer, torch.device("cpu")) if own is None else own
                )

# SPDX-License-Identifier: Apache-2.0
"""A mapping whose values are made when they are looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any


class LazyValues(Mapping[Any, Any]):
    """``value(key)`` for each of ``keys``, anew each time. To ask whether a key is there makes
    none.

    >>> squares = LazyValues([2, 3], lambda number: number**2)
    >>> squares[3], 4 in squares, len(squares)
    (9, False, 2)
    """

    def __init__(self, keys: Collection[Any], value: Callable[[Any], Any]) -> None:
        self._keys, self._value = dict.fromkeys(keys), value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __getitem__(self, key: Any) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return self._value(key)

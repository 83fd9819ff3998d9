# SPDX-License-Identifier: Apache-2.0
"""Names that scripts import although what they stand for is not there yet: using them raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError


def refuse(name: str, feature: str) -> NoReturn:
    raise SMPUnsupportedError(f"{name}: {feature} is not available yet in this version")


def unavailable_function(name: str, feature: str) -> Callable[..., NoReturn]:
    """A function that raises when it is called.

    >>> try:
    ...     unavailable_function("verify", "checking")()
    ... except SMPUnsupportedError as error:
    ...     print(error)
    verify: checking is not available yet in this version
    """

    def function(*_args: Any, **_kwargs: Any) -> NoReturn:
        refuse(name, feature)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Not available yet: {feature}."
    return function


def unavailable_class(name: str, feature: str, base: type = object) -> type[Any]:
    """A class that raises when an instance is made; ``isinstance`` and subclassing work."""

    def refuse_instance(self: object, *_args: Any, **_kwargs: Any) -> NoReturn:
        refuse(name, feature)

    body = {"__init__": refuse_instance, "__doc__": f"Not available yet: {feature}."}
    return type(name, (base,), body)

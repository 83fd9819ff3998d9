# SPDX-License-Identifier: Apache-2.0
from datetime import timedelta
from typing import Any

def create_backend(
    store: Any, rank: int, size: int, timeout: timedelta, global_ranks: list[int]
) -> Any: ...
def leave(backend: object) -> None: ...

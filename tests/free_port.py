# SPDX-License-Identifier: Apache-2.0
"""Ports for jobs that run beside others: they would meet at the launcher's own, 7777."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> str:
    """Not one of those that the kernel gives to whoever asks for any: given back, it could be
    another program's before the job takes it."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return str(port)
    raise AssertionError("a hundred ports are taken")

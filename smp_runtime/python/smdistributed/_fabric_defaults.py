# SPDX-License-Identifier: Apache-2.0
"""Variables of libfabric, which carries messages between hosts, that have other defaults here."""

from __future__ import annotations

import os

_DEFAULTS = {
    # Over TCP it cuts longer messages into pieces of 16 KiB and waits for answers between them,
    # which leaves a slow network idle for a third of the time.
    "FI_OFI_RXM_EAGER_LIMIT": str(2**18),
    # Over EFA, memory that the device writes to must stay the parent's when a DataLoader forks.
    "FI_EFA_FORK_SAFE": "1",
}


def set_fabric_defaults() -> None:
    """Sets those that the environment does not. libfabric reads them once, when it starts."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)

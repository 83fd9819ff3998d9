# SPDX-License-Identifier: Apache-2.0
"""torch's key-value stores, in one place because torch does not export their types."""

from torch._C._distributed_c10d import HashStore, PrefixStore, Store, TCPStore

__all__ = ["HashStore", "PrefixStore", "Store", "TCPStore"]

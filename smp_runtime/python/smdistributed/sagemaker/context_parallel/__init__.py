# SPDX-License-Identifier: Apache-2.0
"""Names of context parallelism, which is not offered."""

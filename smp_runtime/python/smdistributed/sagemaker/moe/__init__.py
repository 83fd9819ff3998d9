# SPDX-License-Identifier: Apache-2.0
"""Names of expert parallelism, which is not offered."""

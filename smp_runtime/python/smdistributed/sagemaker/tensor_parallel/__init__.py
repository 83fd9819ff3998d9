# SPDX-License-Identifier: Apache-2.0
"""Names of tensor parallelism; its layers are not there."""

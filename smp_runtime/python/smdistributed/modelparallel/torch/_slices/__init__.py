# SPDX-License-Identifier: Apache-2.0
"""The ground of tensor parallelism: its group, and how tensors lie over it."""

# SPDX-License-Identifier: Apache-2.0
"""Older names of checkpoints of FSDP."""

# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of DCP, written whole or not at all, also beside training."""

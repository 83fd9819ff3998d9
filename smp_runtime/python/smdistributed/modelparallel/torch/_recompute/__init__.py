# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing: regions whose activations are computed again in backward."""

# SPDX-License-Identifier: Apache-2.0
"""Copies of the model: their gradients, buffers and batches."""

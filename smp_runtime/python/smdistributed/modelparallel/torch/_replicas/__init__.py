# SPDX-License-Identifier: Apache-2.0
"""Copies of the model, and whether they are fed and built as they should be."""

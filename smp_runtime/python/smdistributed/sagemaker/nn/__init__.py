# SPDX-License-Identifier: Apache-2.0
"""Attention for models of Hugging Face."""

# SPDX-License-Identifier: Apache-2.0
"""Modules of Hugging Face models over PyTorch's attention."""

# SPDX-License-Identifier: Apache-2.0
"""Replacements for functions of torch."""

from smdistributed.modelparallel.torch.patches import checkpoint as checkpoint

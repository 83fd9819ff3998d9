# SPDX-License-Identifier: Apache-2.0
"""The published path of ``_slices.tensor_group``."""

from smdistributed.modelparallel.torch._slices.tensor_group import *  # noqa: F403

# SPDX-License-Identifier: Apache-2.0
"""The published path of ``_slices.parameter_slices``."""

from smdistributed.modelparallel.torch._slices.parameter_slices import *  # noqa: F403

# SPDX-License-Identifier: Apache-2.0
"""The published path of ``_slices.random_streams``."""

from smdistributed.modelparallel.torch._slices.random_streams import *  # noqa: F403

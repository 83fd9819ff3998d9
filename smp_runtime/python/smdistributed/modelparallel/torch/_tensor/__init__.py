# SPDX-License-Identifier: Apache-2.0
"""Which modules are split over tensor-parallel ranks."""

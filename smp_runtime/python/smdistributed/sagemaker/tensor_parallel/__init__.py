# SPDX-License-Identifier: Apache-2.0
"""Models whose layers are split over ranks."""

# SPDX-License-Identifier: Apache-2.0
"""Replacement of modules by ones that are split over tensor-parallel ranks."""

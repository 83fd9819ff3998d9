# SPDX-License-Identifier: Apache-2.0
"""Ranks, their groups, and how they meet."""

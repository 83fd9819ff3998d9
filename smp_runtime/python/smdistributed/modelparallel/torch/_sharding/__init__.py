# SPDX-License-Identifier: Apache-2.0
"""Sharded state, 16-bit computing, and what an optimizer steps then."""

# SPDX-License-Identifier: Apache-2.0
"""Flat shards, 16-bit computing, and what an optimizer steps then."""

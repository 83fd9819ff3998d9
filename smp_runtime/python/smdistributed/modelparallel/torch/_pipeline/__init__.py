# SPDX-License-Identifier: Apache-2.0
"""Calls between partitions, and what a step cuts and collects."""

# SPDX-License-Identifier: Apache-2.0
"""Placement of modules on partitions."""

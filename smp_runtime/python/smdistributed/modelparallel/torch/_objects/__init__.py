# SPDX-License-Identifier: Apache-2.0
"""Containers and objects as calls between partitions see and carry them."""

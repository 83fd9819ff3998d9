# SPDX-License-Identifier: Apache-2.0
"""Annotations of modules before these are wrapped, and notes taken while modules are made."""

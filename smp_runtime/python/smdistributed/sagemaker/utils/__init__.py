# SPDX-License-Identifier: Apache-2.0
"""Helpers that scripts import, under the names of SMP v2."""

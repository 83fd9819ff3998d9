# SPDX-License-Identifier: Apache-2.0
"""State in files, and into other degrees."""

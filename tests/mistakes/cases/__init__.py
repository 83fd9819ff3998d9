# SPDX-License-Identifier: Apache-2.0
"""All mistakes, by what they are about."""

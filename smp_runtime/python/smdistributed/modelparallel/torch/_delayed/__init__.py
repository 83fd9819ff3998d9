# SPDX-License-Identifier: Apache-2.0
"""Parameters without storage until it is known where they go."""

# SPDX-License-Identifier: Apache-2.0
"""Where each module goes."""

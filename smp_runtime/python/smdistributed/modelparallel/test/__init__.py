# SPDX-License-Identifier: Apache-2.0
"""Names that published scripts import and do not call."""

# SPDX-License-Identifier: Apache-2.0
"""The interpreter in which torch is imported already, while tests run."""

python: str | None = None
"""None where there is none, as for a file that is run by hand."""

# SPDX-License-Identifier: Apache-2.0
"""The documentation's table of what goes together is the one that the code goes by."""

from __future__ import annotations

from pathlib import Path

from smdistributed import _runtime

DOCUMENT = Path(__file__).resolve().parents[2] / "smp_runtime" / "README.md"


def test_table_in_the_documentation_is_that_of_the_code() -> None:
    assert _runtime.compositions_as_markdown() in DOCUMENT.read_text()

# SPDX-License-Identifier: Apache-2.0
"""The documentation's table of settings is that of the code; SMP_UPDATE_GOLDEN=1 writes it anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

from smdistributed import _runtime

DOCUMENT = Path(__file__).resolve().parents[2] / "smp_runtime" / "topology" / "parameters.md"


def test_table_in_the_documentation_is_that_of_the_code() -> None:
    if os.environ.get("SMP_UPDATE_GOLDEN") == "1":
        introduction = DOCUMENT.read_text().partition("| key |")[0]
        DOCUMENT.write_text(introduction + _runtime.parameters_as_markdown())

    assert DOCUMENT.read_text().endswith(_runtime.parameters_as_markdown())


def test_every_key_has_a_row() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]

    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert named == set(_runtime.parameter_names())

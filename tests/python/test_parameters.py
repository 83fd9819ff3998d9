# SPDX-License-Identifier: Apache-2.0
"""The documentation's tables of settings are those of the code; SMP_UPDATE_GOLDEN=1 writes them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from smdistributed import _runtime

FOLDER = Path(__file__).resolve().parents[2] / "smp_runtime" / "topology"
DOCUMENT = FOLDER / "parameters.md"


@pytest.mark.parametrize(
    ("document", "table"),
    [
        (DOCUMENT, _runtime.parameters_as_markdown()),
        (FOLDER / "v2_parameters.md", _runtime.v2_parameters_as_markdown()),
    ],
)
def test_table_in_the_documentation_is_that_of_the_code(document: Path, table: str) -> None:
    if os.environ.get("SMP_UPDATE_GOLDEN") == "1":
        introduction = document.read_text().partition("| key |")[0]
        document.write_text(introduction + table)

    assert document.read_text().endswith(table)


def test_every_key_has_a_row() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]

    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert named == set(_runtime.parameter_names())

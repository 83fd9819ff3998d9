# SPDX-License-Identifier: Apache-2.0
"""Each complaint about the reference launcher (section 14 of its specification) has a test of ours,
or a line in the reference of `train` that says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomllib

from tests.documents.named_tests import ROOT, exists

COMPLAINTS: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("complaints.toml").read_text()
)["complaint"]
ROWS = 42


def test_every_row_is_there_once() -> None:
    assert [complaint["row"] for complaint in COMPLAINTS] == list(range(1, ROWS + 1))


@pytest.mark.parametrize("complaint", COMPLAINTS, ids=lambda complaint: str(complaint["row"]))
def test_it_has_tests_or_a_line_in_the_reference(complaint: dict[str, Any]) -> None:
    assert complaint.get("tests") or complaint.get("said"), complaint["what"]
    for test in complaint.get("tests", []):
        assert exists(test), f"{test}: no such test"
    if "said" in complaint:
        reference = " ".join((ROOT / "docs/reference/train.md").read_text().split())
        assert complaint["said"] in reference

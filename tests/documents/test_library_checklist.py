# SPDX-License-Identifier: Apache-2.0
"""Each tick of the library's list names tests that exist; the rest says what is missing."""

from __future__ import annotations

import re

import pytest

from tests.documents.named_tests import ROOT, exists

TEXT = (ROOT / "smp_runtime" / "README.md").read_text()
ITEMS = [" ".join(item.split()) for item in re.split(r"^- (?=\[)", TEXT, flags=re.MULTILINE)[1:]]


def test_there_is_a_list() -> None:
    assert len(ITEMS) > 20
    assert all(re.match(r"\[[x ]\] ", item) for item in ITEMS)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item[:40])
def test_item_shows_its_tests_or_what_is_missing(item: str) -> None:
    named = re.findall(r"`([^`\s]+::[^`\s]+)`", item)
    if item.startswith("[ ]"):
        assert "Missing: " in item
        return
    assert named, "a tick without a test"
    for test in named:
        assert exists(test), f"{test}: no such test"

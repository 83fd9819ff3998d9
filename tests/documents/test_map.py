# SPDX-License-Identifier: Apache-2.0
"""The page that follows values through the source names files and words that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "develop" / "map.md"


def test_the_ways_pass_files_that_exist() -> None:
    ways = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
    files = re.findall(
        r"`((?:opt_ml_layout|entrypoint|smp_runtime)/[\w/]+\.\w+)`", PAGE.read_text()
    )

    assert len(ways) == 1 + 4  # the rooms, and the ways through them
    assert len(files) > 30
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_each_file_has_the_names_that_its_row_gives() -> None:
    absent = []
    for row in re.findall(r"^\| `([\w/.]+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE):
        file, text = row
        sources = {ROOT / file, (ROOT / file).with_suffix(".cc")}
        there = "".join(source.read_text() for source in sources if source.is_file())
        for name in re.findall(r"`([A-Za-z_:]+)`", text):
            last = name.rpartition("::")[2]
            if "_" in last or last[:1].isupper():
                absent += [] if last in there else [f"{file}: {name}"]

    assert absent == []

# SPDX-License-Identifier: Apache-2.0
"""Links between the repository's documents lead somewhere, and its picture is that of its source.

Links and anchors of built pages are the business of ci/docs.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.documents.named_tests import ROOT

PICTURE = ROOT / "docs" / "images" / "architecture"
CODE = re.compile(r"^(```+|~~~+).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(<?([^)\s>]+)|^\[[^\]]+\]: +(\S+)", re.MULTILINE)


def documents() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return listed.stdout.splitlines()


def relative_links(text: str) -> Iterator[str]:
    """Paths of links that leave the page and stay in the repository."""
    for one, other in LINK.findall(CODE.sub("", text)):
        path = (one or other).partition("#")[0]
        if path and not re.match(r"[a-z]+:", path):
            yield path


def test_links_are_found_where_they_are_none_of_code() -> None:
    text = "[a](b.md#c) [d](https://e.org) [f](#g) `[h](i)`\n```\n[j](k)\n```\n[l]: m/n.md\n"

    assert list(relative_links(text)) == ["b.md", "m/n.md"]


@pytest.mark.parametrize("document", documents())
def test_what_a_document_links_to_is_there(document: str) -> None:
    path = ROOT / document
    missing = [
        link for link in relative_links(path.read_text()) if not (path.parent / link).exists()
    ]

    assert missing == []


def test_the_picture_shows_the_labels_of_its_source() -> None:
    """`ci/docs --picture` draws it anew."""
    source = Path(f"{PICTURE}.dot").read_text()
    labels = [part for label in re.findall(r'label="(.*?)"', source) for part in label.split(r"\n")]
    for label in re.findall(r"label=<(.*?)>;", source):
        labels += re.split(r"<[^>]*>", label)
    drawn = ElementTree.parse(f"{PICTURE}.svg").iter("{http://www.w3.org/2000/svg}text")

    shown = {(text.text or "").strip() for text in drawn}
    assert shown == {label.strip() for label in labels if label.strip()}

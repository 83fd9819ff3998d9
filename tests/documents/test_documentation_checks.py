# SPDX-License-Identifier: Apache-2.0
"""ci/docs checks links and anchors of built pages, and that nothing comes from elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.named_tests import ROOT


def complaints(folder: Path, **pages: str) -> tuple[int, list[str]]:
    for name, text in pages.items():
        file = folder / name.replace("_", ".")
        file.write_text(text)
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "_tools" / "check_pages.py", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


def test_links_within_the_folder_and_to_other_sites_are_fine(tmp_path: Path) -> None:
    code, said = complaints(
        tmp_path,
        a_html='<h1 id="top">A</h1><a href="b.html#end">b</a><a href="#top">up</a>'
        '<a href="https://example.org/x">elsewhere</a>',
        b_html='<section id="end"><img src="data:image/png;base64,AA"></section>',
    )

    assert (code, said) == (0, [])


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<a href="gone.html">x</a>', "gone.html is no file"),
        ('<a href="#gone">x</a>', "#gone is no anchor"),
        ('<img src="gone.png">', "gone.png is no file"),
        ('<script src="https://cdn.example.org/x.js"></script>', "fetches https://cdn"),
        ('<link rel="stylesheet" href="//fonts.example.org/f.css">', "fetches //fonts"),
        ('<p style="background: url(http://example.org/b.png)">', "fetches http://example"),
    ],
)
def test_what_leads_nowhere_or_elsewhere_is_named(tmp_path: Path, page: str, expected: str) -> None:
    code, said = complaints(tmp_path, a_html=page)

    assert code == 1
    assert len(said) == 1
    assert said[0].startswith("docs: a.html: ")
    assert expected in said[0]


def test_fonts_that_a_stylesheet_fetches_are_named(tmp_path: Path) -> None:
    code, said = complaints(
        tmp_path, a_html="", style_css='@import "https://fonts.example.org/f.css"; p { color: red }'
    )

    assert (code, said) == (1, ["docs: style.css: fetches https://fonts.example.org/f.css"])

# SPDX-License-Identifier: Apache-2.0
"""The reference of C++ headers has all of them, what each declares, and nothing that is private."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.named_tests import ROOT

HEADERS = ROOT / "smp_runtime" / "include" / "smp"
PAGE = ROOT / "docs" / "reference" / "cpp_headers.md"
ALL_OF_THEM = "smp.h"  # declares nothing
DECLARED = re.compile(
    r"^(?:using (?P<type>\w+) =|(?:enum class|class|struct) (?P<class>\w+)(?: final)?(?: : .*)? \{"
    r"|(?:\[\[nodiscard\]\] )?(?:inline )?[\w:<>]+ (?P<function>\w+)\(|#define (?P<define>\w+))",
    re.MULTILINE,
)


def public_headers() -> dict[str, str]:
    """Text by name; that of the version, which CMake makes, as it is before."""
    found = {path.name: path.read_text() for path in sorted(HEADERS.glob("*.h"))}
    return found | {"version.h": (HEADERS.parents[1] / "packaging" / "version.h.in").read_text()}


def sections() -> dict[str, str]:
    """Text of the page on each header."""
    parts = re.split(r"^## `smp/(\w+\.h)`\n", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def declared(text: str) -> set[str]:
    return {name for match in DECLARED.finditer(text) for name in match.groups() if name}


def test_every_public_header_has_a_section() -> None:
    headers = set(public_headers())

    assert headers - {ALL_OF_THEM} == set(sections())
    assert f"`#include <smp/{ALL_OF_THEM}>`" in PAGE.read_text()


@pytest.mark.parametrize("name", sorted(set(public_headers()) - {ALL_OF_THEM}))
def test_what_a_header_declares_is_in_its_section(name: str) -> None:
    names = declared(public_headers()[name])
    directives = r"^```\{doxygen\w+\} (?:smp::)?(\w+)$"

    assert names
    assert names == set(re.findall(directives, sections()[name], re.MULTILINE))


def read(folder: Path, header: str) -> subprocess.CompletedProcess[str]:
    """Has Doxygen read a header as ci/docs does."""
    if shutil.which("doxygen") is None:
        pytest.skip("there is no doxygen; ci/docs installs it")
    (folder / "shape.h").write_text(header)
    settings = (ROOT / "docs" / "_tools" / "Doxyfile").read_text()
    settings += f"\nINPUT = {folder}/shape.h\nOUTPUT_DIRECTORY = {folder}\n"
    return subprocess.run(
        ["doxygen", "-"], cwd=ROOT, input=settings, capture_output=True, text=True, check=False
    )


SHAPE = """\
/// Shapes.
namespace smp {
/// A shape.
class Shape {
 public:
  /// In metres.
  double length() const;
  /// @cond OF_THE_LIBRARY
  class Core;
  Core* core() const;
  /// @endcond
 private:
  /// Where it lies.
  double place_;
};
}  // namespace smp
"""


def test_a_header_with_comments_is_read_without_a_word(tmp_path: Path) -> None:
    done = read(tmp_path, SHAPE)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("comment", "named"), [("In metres.", "length"), ("A shape.", "smp::Shape")]
)
def test_a_public_name_without_a_comment_is_an_error(
    tmp_path: Path, comment: str, named: str
) -> None:
    done = read(tmp_path, SHAPE.replace(f"/// {comment}\n", "\n"))

    assert done.returncode != 0
    assert re.search(rf"shape\.h:\d+: error: .*{named}.* is not documented", done.stderr)


def check(folder: Path, shown: list[str]) -> list[str]:
    """Complaints of docs/_tools/check_headers.py of a page that shows these declarations."""
    compounds = [path for path in (folder / "xml").glob("*.xml") if path.name.startswith("class")]
    text = "".join(path.read_text() for path in compounds)
    anchors = [
        anchor
        for anchor, name in re.findall(
            r'<(?:compounddef|memberdef)[^>]* id="(\w+)".*?<(?:compound)?name>([\w:]+)<', text, re.S
        )
        if name in shown
    ]
    page = folder / "page.html"
    page.write_text("".join(f'<span id="{anchor}"></span>' for anchor in anchors))
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "_tools" / "check_headers.py", folder / "xml", page],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (1 if done.stderr else 0)
    return done.stderr.splitlines()


def test_a_page_shows_what_is_public_and_nothing_else(tmp_path: Path) -> None:
    assert read(tmp_path, SHAPE).returncode == 0
    reference = "the reference of C++ headers"

    assert check(tmp_path, ["smp::Shape", "length"]) == []
    assert check(tmp_path, ["smp::Shape"]) == [
        f"docs: smp::Shape::length() const has no comment, or no place in {reference}"
    ]
    assert check(tmp_path, ["smp::Shape", "length", "place_"]) == [
        f"docs: smp::Shape::place_ is private, and {reference} shows it"
    ]


def test_a_page_of_headers_that_nobody_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "xml").mkdir()

    assert check(tmp_path, []) == ["docs: Doxygen found nothing"]

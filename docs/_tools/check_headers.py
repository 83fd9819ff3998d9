# SPDX-License-Identifier: Apache-2.0
"""Checks the page of the C++ headers: every public name has its place, and nothing private has.

    python docs/_tools/check_headers.py XML PAGE

XML is the folder that Doxygen wrote. Prints what is wrong to stderr, one line each, and exits with
1 if anything is. A public name has no place if no directive names it, or if it has no comment.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from check_pages import Page

SHOWN = ("public", "protected")


def declarations(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """The anchor of each declaration, its name and whether it is public."""
    for path in sorted(folder.glob("*.xml")):
        for compound in ET.parse(path).getroot().iter("compounddef"):
            owner = compound.findtext("compoundname", "")
            is_public = compound.get("prot", "public") in SHOWN
            if compound.get("kind") in ("class", "struct"):
                yield compound.get("id", ""), owner, is_public
            for member in compound.iter("memberdef"):
                if member.get("kind") == "friend":
                    continue
                name = member.findtext("name", "") + member.findtext("argsstring", "")
                if compound.get("kind") != "file":
                    name = f"{owner}::{name}"
                yield member.get("id", ""), name, is_public and member.get("prot") in SHOWN


def main() -> int:
    anchors = Page(Path(sys.argv[2]).read_text()).anchors
    found = list(declarations(Path(sys.argv[1])))
    wrong = [] if found else ["Doxygen found nothing"]
    for anchor, name, is_public in found:
        if is_public and anchor not in anchors:
            wrong.append(f"{name} has no comment, or no place in the reference of C++ headers")
        elif not is_public and anchor in anchors:
            wrong.append(f"{name} is private, and the reference of C++ headers shows it")
    for line in dict.fromkeys(wrong):
        print(f"docs: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

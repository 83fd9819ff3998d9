# SPDX-License-Identifier: Apache-2.0
"""Checks built pages: links and anchors lead somewhere, and nothing is fetched from elsewhere.

    python docs/_tools/check_pages.py FOLDER

Prints what is wrong to stderr, one line each, and exits with 1 if anything is.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches without being asked, by element: its attribute.
FETCHED = {"script": "src", "img": "src", "source": "src", "iframe": "src", "object": "data"}
# Kinds of <link> that are fetched; "next" or "search" only name another page.
FETCHED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "manifest"}
IN_STYLES = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")


class Page(HTMLParser):
    """What one page links to, fetches and can be linked at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.fetched += [a or b for a, b in IN_STYLES.findall(given.get("style", ""))]
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and FETCHED_LINKS & set(given.get("rel", "").split()):
            self.fetched.append(given.get("href", ""))
        elif FETCHED.get(tag, "") in given:
            self.fetched.append(given[FETCHED[tag]])


def is_elsewhere(address: str) -> bool:
    """Whether an address leaves the folder; data of the page itself does not."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def wrong_styles(folder: Path) -> list[str]:
    return [
        f"{path.relative_to(folder)}: fetches {address}"
        for path in sorted(folder.rglob("*.css"))
        for one, other in IN_STYLES.findall(path.read_text())
        if is_elsewhere(address := one or other)
    ]


def wrong_links(folder: Path) -> list[str]:
    pages = {path.resolve(): Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    wrong = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        wrong += [f"{name}: fetches {a}" for a in page.fetched if is_elsewhere(a)]
        for address in (*page.links, *page.fetched):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            fragment = unquote(parts.fragment)
            if not target.is_file():
                wrong.append(f"{name}: {address} is no file")
            elif fragment and target in pages and fragment not in pages[target].anchors:
                wrong.append(f"{name}: {address} is no anchor")
    return wrong


def main() -> int:
    folder = Path(sys.argv[1])
    wrong = wrong_links(folder) + wrong_styles(folder)
    for line in dict.fromkeys(wrong):
        print(f"docs: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_tables.cc: what this Python's str.isprintable and str.upper know.

Usage: python3 generate_unicode_tables.py > unicode_tables.cc
The image's Python is the reference: run it again when that changes.
"""

from __future__ import annotations

import unicodedata

LAST = 0x110000


def unprintable_ranges() -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for code in range(LAST):
        if chr(code).isprintable():
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return ranges


def upper_runs() -> tuple[list[tuple[int, int, int, int]], list[tuple[int, str]]]:
    """Runs (first, last, stride, delta) of one-to-one mappings, and the others one by one."""
    runs: list[tuple[int, int, int, int]] = []
    special: list[tuple[int, str]] = []
    for code in range(LAST):
        upper = chr(code).upper()
        if upper == chr(code):
            continue
        if len(upper) > 1:
            special.append((code, upper))
            continue
        delta = ord(upper) - code
        if runs:
            first, last, stride, run_delta = runs[-1]
            step = code - last
            if run_delta == delta and step in (1, 2) and (first == last or step == stride):
                runs[-1] = (first, code, step, delta)
                continue
        runs.append((code, code, 1, delta))
    return runs, special


def rows(items: list[str], width: int = 98) -> str:
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > width:
            lines.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join([*lines, line])


def main() -> None:
    runs, special = upper_runs()
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Made by generate_unicode_tables.py from Unicode {unicodedata.unidata_version}.")
    print('#include "opt_ml_layout/utf8.h"\n')
    print("namespace opt_ml {\n\n// clang-format off")
    print("const CharacterRange kUnprintable[] = {")
    print(rows([f"{{0x{a:X}, 0x{b:X}}}" for a, b in unprintable_ranges()]))
    print("};\n\nconst UpperRun kUpperRuns[] = {")
    print(rows([f"{{0x{a:X}, 0x{b:X}, {s}, {d}}}" for a, b, s, d in runs]))
    print("};\n\nconst UpperSpecial kUpperSpecials[] = {")
    escaped = (
        f'{{0x{c:X}, U"' + "".join(f"\\U{ord(u):08X}" for u in text) + '"}' for c, text in special
    )
    print(rows(list(escaped)))
    print("};\n// clang-format on\n")
    for name in ("Unprintable", "UpperRuns", "UpperSpecials"):
        print(f"const std::size_t k{name}Count = std::size(k{name});")
    print("\n}  // namespace opt_ml")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Candidates as a picture: memory of a rank against the time of a sample, in SVG."""

from __future__ import annotations

import math
from html import escape
from typing import Any

_WIDTH, _HEIGHT, _MARGIN = 640, 400, 56


def picture(rows: list[dict[str, Any]]) -> str:
    """All ``rows`` of an answer; those that no other one beats in both are joined by a line.

    >>> row = {"memory_bytes": 2**30, "samples_per_second": 2.0, "fits": True, "mp_parameters": {}}
    >>> picture([row]).count("<circle")
    1
    """
    points = [(row["memory_bytes"] / 2**30, 1 / row["samples_per_second"], row) for row in rows]
    best = front([(memory, seconds) for memory, seconds, _ in points])
    right, top = max(p[0] for p in points) * 1.05, max(p[1] for p in points)
    low = min(p[1] for p in points)
    span = math.log(top / low) or 1.0

    def place(memory: float, seconds: float) -> tuple[float, float]:
        x = _MARGIN + (_WIDTH - 2 * _MARGIN) * memory / right
        y = _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * math.log(seconds / low) / span
        return round(x, 1), round(y, 1)

    marks = []
    for memory, seconds, row in points:
        x, y = place(memory, seconds)
        colour = "#b33" if not row["fits"] else "#1668b8" if (memory, seconds) in best else "#999"
        label = escape(f"{row['mp_parameters']}: {memory:.2f} GiB, {seconds:.4g} s a sample")
        marks.append(
            f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"><title>{label}</title></circle>'
        )
    line = " ".join(f"{x},{y}" for x, y in (place(*one) for one in best))
    bottom, left = _HEIGHT - _MARGIN, _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">\n'
        f'<path d="M{left},{_MARGIN} V{bottom} H{_WIDTH - _MARGIN}" fill="none" stroke="#333"/>\n'
        f'<text x="{left}" y="{bottom + 32}">memory of a rank, 0 to {right:.2f} GiB</text>\n'
        f'<text x="{left}" y="{_MARGIN - 12}">time of a sample, {low:.3g} to {top:.3g} s '
        "(logarithmic); red: does not fit</text>\n"
        f'<polyline points="{line}" fill="none" stroke="#1668b8"/>\n'
        + "\n".join(marks)
        + "\n</svg>\n"
    )


def front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points that no other one beats in both.

    >>> front([(1, 3), (2, 2), (3, 2.5), (3, 1)])
    [(1, 3), (2, 2), (3, 1)]
    """
    kept: list[tuple[float, float]] = []
    for point in sorted(set(points)):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept

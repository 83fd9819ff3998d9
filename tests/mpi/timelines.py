# SPDX-License-Identifier: Apache-2.0
"""Reads timelines, as SMP_TRACE writes them: one file of each host."""

import json
from collections.abc import Iterator
from pathlib import Path

TRACKS = 16  # tracks of each rank


def spans_in(file: Path) -> Iterator[tuple[int, dict]]:
    """Each stretch of work or waiting as an event, with its rank, in the order of the file."""
    for event in json.loads(file.read_text()):
        if event["ph"] == "X":
            yield event["tid"] // TRACKS, event

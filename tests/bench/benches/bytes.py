# SPDX-License-Identifier: Apache-2.0
"""Bytes that a step of 24 layers over four ranks sends, against PyTorch's pipelining."""

from __future__ import annotations

from benchmark import Result, run_ranks

LIMIT = 1.02
GOAL = f"bytes a step, 24 layers on 4 ranks: at most {LIMIT:g} times those of PyTorch's pipelining"


def run() -> Result:
    rows: list[tuple[str, ...]] = [("bytes sent in a step by all ranks", "m", "bytes", "of 1F1B's")]
    worst = 0.0, 1.0
    for microbatches in (4, 16):
        found = run_ranks(4, "bytes_job.py", microbatches, 4)
        peer = found["PyTorch 1F1B"]
        for name, sent in found.items():
            rows.append((name, str(microbatches), str(sent), f"{sent / peer:.3f}"))
            if name != "PyTorch 1F1B":
                worst = max(worst, (sent, peer), key=lambda pair: pair[0] / pair[1])
    return Result("bytes", *worst, LIMIT, GOAL, rows)

# SPDX-License-Identifier: Apache-2.0
"""A transformer layer on four tensor-parallel ranks against torch.distributed.tensor.parallel."""

from __future__ import annotations

import statistics

from benchmark import Result, run_ranks

RANKS, ROUNDS = 4, 15
KEPT_LIMIT = 1.05 / RANKS
GOAL = (
    "a layer on 4 tensor ranks: bytes and seconds at most those of torch's Colwise/Rowwise plan in "
    f"speed mode; kept between layers in memory mode at most {KEPT_LIMIT:g} of speed mode"
)


def run() -> list[Result]:
    found = run_ranks(RANKS, "tp_job.py", ROUNDS)
    seconds = {name: statistics.median(times) for name, times in found["seconds"].items()}
    rows: list[tuple[str, ...]] = [("forward and backward of a layer", "ours", "torch", "ratio")]
    for name, values in (("bytes a rank sends", found["bytes"]), ("seconds, median", seconds)):
        ours, peer = values["ours, speed"], values["torch"]
        rows.append((name, f"{ours:.6g}", f"{peer:.6g}", f"{ours / peer:.3f}"))
    memory, speed = found["kept, memory"], found["kept, speed"]
    rows.append(("bytes kept, memory and speed mode", *map(str, (memory, speed)),
                 f"{memory / speed:.3f}"))  # fmt: skip
    sent = found["bytes"]
    return [
        Result("tp bytes", sent["ours, speed"], sent["torch"], 1.0, GOAL, rows),
        Result("tp seconds", seconds["ours, speed"], seconds["torch"], 1.0, GOAL),
        Result("tp kept", memory, speed, KEPT_LIMIT, GOAL),
    ]

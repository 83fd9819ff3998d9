# SPDX-License-Identifier: Apache-2.0
"""Two ranks of which one does what it should not; the argument says what."""

from __future__ import annotations

import os
import sys

import smdistributed.modelparallel.torch as smp

CASE = sys.argv[1]
RANK = int(os.environ["OMPI_COMM_WORLD_RANK"])

if CASE == "different-settings":
    smp.init({"microbatches": 2 + RANK})
elif CASE == "does-not-divide":
    smp.init({"partitions": 4})
else:
    smp.init({"partitions": 2})
    if CASE == "absent-from-barrier" and RANK == 0:
        smp.barrier()
    elif CASE == "nothing-sent" and RANK == 0:
        smp.recv_from(1, smp.RankType.PP_RANK)
    elif CASE == "nobody-receives" and RANK == 1:
        smp.send("hello", 0, smp.RankType.WORLD_RANK)
    elif CASE == "absent-from-allgather" and RANK == 1:
        smp.allgather(1, smp.PP_GROUP)
    elif CASE == "wrong-rank":
        smp.recv_from(2, smp.RankType.PP_RANK)
    elif CASE == "failure":
        if RANK == 0:
            raise ArithmeticError("the script of rank 0 failed")
        smp.barrier()

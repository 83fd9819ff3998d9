# SPDX-License-Identifier: Apache-2.0
"""`python -m smdistributed.dataparallel.bench` as a file, for run_mpi."""

import sys

from smdistributed.dataparallel.bench import main

main(sys.argv[1:])

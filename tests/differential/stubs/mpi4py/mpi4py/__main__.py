# SPDX-License-Identifier: Apache-2.0
"""`python -m mpi4py [-m] NAME ARG...` without MPI."""

import runpy
import sys

sys.argv = sys.argv[1:]
if sys.argv[0] == "-m":
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    runpy.run_path(sys.argv[0], run_name="__main__")

# SPDX-License-Identifier: Apache-2.0
"""Runs a script in double precision, where another order of a sum's terms hardly shows.

in_double.py SCRIPT ARGS...
"""

import runpy
import sys

import torch

torch.set_default_dtype(torch.float64)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")

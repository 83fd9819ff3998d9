# SPDX-License-Identifier: Apache-2.0
"""`python -m pip` that installs nothing: it records how it was called."""

import os
import runpy

runpy.run_path(os.environ["SMP_RECORDER"])["main"]("pip")

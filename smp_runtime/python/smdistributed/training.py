# SPDX-License-Identifier: Apache-2.0
"""A job handed over by Amazon's launcher: SAGEMAKER_TRAINING_MODULE=smdistributed.training:main.

In images whose `train` is that of the package sagemaker-training, this variable has it import a
module and call a function in place of starting the script itself.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import NoReturn


def main() -> NoReturn:
    """Becomes our launcher, which runs the job of /opt/ml (or SAGEMAKER_BASE_DIR) to its end.

    Raises FileNotFoundError where the wheel's program `smp-train` is not beside this interpreter.
    """
    launcher = Path(sysconfig.get_path("scripts")) / "smp-train"
    if not launcher.exists():
        raise FileNotFoundError(f"there is no {launcher}; install the wheel of open-smp-train anew")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(launcher, [str(launcher)])

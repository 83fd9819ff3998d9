# SPDX-License-Identifier: Apache-2.0
"""Importing this registers the backend ``smddp`` with ``torch.distributed``::

    import smdistributed.dataparallel.torch.torch_smddp
    torch.distributed.init_process_group("smddp")

Under a plain ``mpirun python`` or ``srun python`` it also sets the rank variables (``RANK``,
``LOCAL_RANK``, ...) that are not set yet.
"""

from __future__ import annotations

import os

import torch.distributed  # noqa: F401 - ours needs its libraries, wherever it lies

from smdistributed._smddp import missing_rank_variables
from smdistributed.dataparallel.torch.backend_registration import BACKEND, register

__all__ = ["BACKEND"]

os.environ.update(missing_rank_variables(dict(os.environ)))
register()

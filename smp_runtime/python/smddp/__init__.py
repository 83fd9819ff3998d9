# SPDX-License-Identifier: Apache-2.0
"""The backend ``smddp`` of ``torch.distributed``, for whoever uses Gloo or MPI on CPUs today::

    import smddp
    torch.distributed.init_process_group("smddp")

It moves tensors through shared memory within a host and libfabric between hosts. Importing it
registers the backend; under a plain ``mpirun python`` or ``srun python`` it also sets the variables
of ranks (``RANK``, ``MASTER_ADDR``, ...) that are not set yet. Nothing of SageMaker is needed.

>>> BACKEND
'smddp'
"""

from smdistributed.dataparallel.torch.torch_smddp import BACKEND

__all__ = ["BACKEND"]

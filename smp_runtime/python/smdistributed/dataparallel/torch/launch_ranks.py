# SPDX-License-Identifier: Apache-2.0
"""The rank variables that scripts read, made from what Open MPI says."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

_FROM_OPEN_MPI = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}
# Below the range from which Linux takes ports for outgoing connections.
_PORTS = range(10000, 30000)


def rank_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """What to add to ``variables`` so that ``init_process_group`` needs no argument; pure.

    Nothing that is set is changed, and nothing is added outside of ``mpirun``. The address and the
    port of the rendezvous are added when all ranks are on this host; the port comes from the number
    of the job, so that two jobs at once differ.

    >>> added = rank_variables({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
    ...     "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "RANK": "1"})
    >>> added
    {'WORLD_SIZE': '2', 'LOCAL_RANK': '1', 'LOCAL_WORLD_SIZE': '2', 'MASTER_ADDR': '127.0.0.1'}
    """
    if any(theirs not in variables for theirs in _FROM_OPEN_MPI.values()):
        return {}
    added = {ours: variables[theirs] for ours, theirs in _FROM_OPEN_MPI.items()}
    if variables["OMPI_COMM_WORLD_SIZE"] == variables["OMPI_COMM_WORLD_LOCAL_SIZE"]:
        added["MASTER_ADDR"] = "127.0.0.1"
        job = variables.get("OMPI_MCA_ess_base_jobid") or variables.get("PMIX_NAMESPACE")
        if job:
            digest = hashlib.sha256(job.encode()).digest()
            added["MASTER_PORT"] = str(_PORTS[int.from_bytes(digest[:4], "big") % len(_PORTS)])
    return {name: value for name, value in added.items() if name not in variables}

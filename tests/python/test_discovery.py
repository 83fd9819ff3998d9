# SPDX-License-Identifier: Apache-2.0
"""Which rank this is, from what launchers export."""

import pytest
from smdistributed.modelparallel.torch._session.discovery import Identity, discover, locality
from smdistributed.modelparallel.torch.exceptions import SMPConfigError

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
SLURM = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "0"}
PMI = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (OPEN_MPI, Identity(5, 8, 1, 4, "Open MPI")),
        (PMI, Identity(1, 2, 1, 2, "PMI")),
        (SLURM, Identity(2, 4, 0, None, "Slurm")),
        (TORCHRUN, Identity(3, 4, 1, 2, "torchrun")),
        ({}, Identity(0, 1, 0, 1, "no launcher")),
    ],
)
def test_each_launcher_is_understood(variables: dict[str, str], expected: Identity) -> None:
    assert discover(variables) == expected


def test_the_order_is_open_mpi_pmi_slurm_torchrun() -> None:
    assert discover({**TORCHRUN, **SLURM, **PMI, **OPEN_MPI}).source == "Open MPI"
    assert discover({**TORCHRUN, **SLURM, **PMI}).source == "PMI"
    assert discover({**TORCHRUN, **SLURM}).source == "Slurm"


def test_a_process_of_torchrun_believes_torchrun_inside_slurm() -> None:
    assert discover({**SLURM, **TORCHRUN, "TORCHELASTIC_RUN_ID": "x"}).source == "torchrun"


def test_a_batch_script_of_slurm_is_one_process() -> None:
    assert discover({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7"}).size == 1


def test_without_a_launcher_locality_is_unknown() -> None:
    assert locality({}) == (None, None)
    assert locality(OPEN_MPI) == (1, 4)


@pytest.mark.parametrize("change", [{"RANK": "4"}, {"RANK": "-1"}, {"WORLD_SIZE": "many"}])
def test_numbers_that_do_not_fit_are_refused(change: dict[str, str]) -> None:
    with pytest.raises(SMPConfigError, match="torchrun"):
        discover({**TORCHRUN, **change})

# SPDX-License-Identifier: Apache-2.0
"""Where ranks meet, from what launchers export."""

from dataclasses import replace

import pytest
from smdistributed.modelparallel.torch._session.discovery import Identity
from smdistributed.modelparallel.torch._session.launch_environment import (
    LaunchEnvironment,
    read_launch_environment,
)
from smdistributed.modelparallel.torch._session.rendezvous import Rendezvous, plan_rendezvous
from smdistributed.modelparallel.torch.exceptions import SMPConfigError

ONE_HOST = Identity(1, 4, 1, 4, "Open MPI")
TWO_HOSTS = Identity(1, 4, 1, 2, "Open MPI")
MASTER = {"MASTER_ADDR": "algo-1", "MASTER_PORT": "7777"}
JOB = {"OMPI_MCA_ess_base_jobid": "2146566145"}


def environment_of(hosts: tuple[str, ...], variables: dict[str, str]) -> LaunchEnvironment:
    return replace(read_launch_environment({}), hosts=hosts, variables=variables)


def plan(
    identity: Identity,
    variables: dict[str, str],
    *,
    hosts: tuple[str, ...] = (),
    ddp_port: int | None = None,
    have_mpi: bool = False,
) -> Rendezvous:
    environment = environment_of(hosts, variables)
    return plan_rendezvous(identity, environment, ddp_port, have_mpi)


def test_the_environment_decides() -> None:
    assert plan(TWO_HOSTS, MASTER) == Rendezvous("algo-1", 7777)


def test_ddp_port_wins_over_the_environment() -> None:
    assert plan(TWO_HOSTS, MASTER, ddp_port=5000) == Rendezvous("algo-1", 5000)


def test_the_store_of_torchruns_agent_is_used_as_it_is() -> None:
    variables = {**MASTER, "TORCHELASTIC_USE_AGENT_STORE": "True"}

    assert plan(ONE_HOST, variables, ddp_port=5000) == Rendezvous("algo-1", 7777, foreign=True)


def test_over_mpi_rank_0_picks_a_port_and_tells_its_address() -> None:
    assert plan(ONE_HOST, {}, have_mpi=True) == Rendezvous("127.0.0.1", 0)
    assert plan(TWO_HOSTS, {}, have_mpi=True) == Rendezvous("", 0)
    assert plan(TWO_HOSTS, {"MASTER_ADDR": "algo-1"}, have_mpi=True) == Rendezvous("algo-1", 0)


def test_without_mpi_the_first_host_of_the_job_is_rank_0s() -> None:
    place = plan(TWO_HOSTS, JOB, hosts=("algo-1", "algo-2"))

    assert place.host == "algo-1"


def test_a_derived_port_is_the_same_on_all_ranks_and_differs_between_jobs() -> None:
    ports = {plan(ONE_HOST, {"OMPI_MCA_ess_base_jobid": str(job)}).port for job in range(50)}

    assert plan(ONE_HOST, JOB).port == plan(Identity(0, 4, 0, 4, "Open MPI"), JOB).port
    assert len(ports) > 45
    assert all(10000 <= port < 30000 for port in ports)


def test_the_next_init_derives_another_port() -> None:
    environment = environment_of((), JOB)
    ports = {plan_rendezvous(ONE_HOST, environment, None, False, n).port for n in range(5)}

    assert len(ports) == 5


@pytest.mark.parametrize(
    ("identity", "variables", "text"),
    [
        (TWO_HOSTS, JOB, "export MASTER_ADDR and MASTER_PORT"),
        (ONE_HOST, {}, "export MASTER_PORT"),
        (ONE_HOST, {**MASTER, "MASTER_PORT": "http"}, "expected a port"),
        (ONE_HOST, {**MASTER, "MASTER_PORT": "70000"}, "expected a port"),
    ],
)
def test_what_is_missing_is_named(identity: Identity, variables: dict[str, str], text: str) -> None:
    with pytest.raises(SMPConfigError, match=text):
        plan(identity, variables)

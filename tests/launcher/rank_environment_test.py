# SPDX-License-Identifier: Apache-2.0
"""MPI jobs: what the ranks are given, and with what options."""

from __future__ import annotations

import pytest
from jobs import make_trees
from runners import RANK_NAMES, TELL_RANK, needs_mpirun, told


@needs_mpirun
def test_mpi_ranks_get_none_of_them(folder, run):
    """Libraries that find RANK set take the job for torchrun's."""
    [tree] = make_trees(folder, TELL_RANK, processes=2)

    ranks = told(run(tree))

    assert len(ranks) == 2
    assert all(one[name] is None for one in ranks for name in RANK_NAMES)


@needs_mpirun
def test_complaint_24_without_mpi4py_a_failing_rank_ends_the_job_all_the_same(folder, run):
    """`-S` leaves out site-packages, so this interpreter has no mpi4py."""
    script = """
        import os, signal
        if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
            raise ValueError("boom")
        signal.pause()
    """
    python = folder / "bin" / "python3"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nexec /usr/bin/python3 -S "$@"\n')
    python.chmod(0o755)
    [tree] = make_trees(folder, script, processes=2)

    result = run(tree, SM_LAUNCH_PYTHON=str(python))

    assert "has no mpi4py" in result.err
    assert result.code == 1
    assert 'ErrorMessage "rank 1 on algo-1: ValueError: boom' in tree.failure


@needs_mpirun
def test_complaints_8_and_9_options_listed_twice_do_no_harm_to_the_real_mpirun(folder, run):
    options = (
        "--mca btl_vader_single_copy_mechanism none --map-by slot -x NOTE='a b' -x NCCL_DEBUG=X"
    )
    [tree] = make_trees(
        folder,
        """
        import os
        print("note", os.environ["NOTE"], os.environ["NCCL_DEBUG"])
        """,
        processes=2,
        hyperparameter=[f"sagemaker_mpi_custom_mpi_options={options}"],
    )

    result = run(tree)

    assert result.code == 0, result.err
    assert result.out.count("note a b X\n") == 2


@needs_mpirun
@pytest.mark.parametrize("mpi", [True, False])
def test_values_too_long_for_a_variable_come_as_files(folder, run, mpi):
    """Sixty values at the service's limit, together more than Linux lets one variable hold."""
    script = """
        import json, os
        assert "SM_HPS" not in os.environ
        with open(os.environ["SM_HPS_FILE"]) as file:
            values = json.load(file)
        with open(os.environ["SM_TRAINING_ENV_FILE"]) as file:
            environment = json.load(file)
        assert values == environment["hyperparameters"], environment
        print("read", len(values), len(values["text-59"]), len(os.environ["SM_HP_TEXT-59"]))
    """
    values = [f"text-{number:02}={'x' * 2500}" for number in range(60)]
    options = {"processes": 2} if mpi else {}
    [tree] = make_trees(folder, script, hyperparameter=values, **options)

    result = run(tree, SM_HPS="of another job")

    assert result.code == 0, result.err[-2000:]
    assert result.out.count("read 60 2500 2500\n") == (2 if mpi else 1)
    assert "SM_HPS_FILE names a file with it" in result.err

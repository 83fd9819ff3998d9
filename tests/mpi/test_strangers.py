# SPDX-License-Identifier: Apache-2.0
"""Whoever reaches the port of a job's store reads nothing there, and is not believed."""

import secrets

from launching import run_torchrun


def test_what_a_stranger_writes_into_the_store_is_refused_by_its_key() -> None:
    outcome = run_torchrun(
        2, "stranger_job.py", SMP_JOB_SECRET=secrets.token_hex(32), SMP_TIMEOUT_SECONDS="60"
    )

    assert outcome.code != 0
    assert "stranger read b'" in outcome.output, "the stranger got there"
    assert '"ddp":true' not in outcome.output, "and read what it says"
    assert "/settings\" in the job's store does not carry the code of the job's secret" in (
        outcome.output
    )
    assert "microbatches is 1 here and 7 there" not in outcome.output

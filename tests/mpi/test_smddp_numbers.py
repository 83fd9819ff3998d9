# SPDX-License-Identifier: Apache-2.0
"""Sums and orders of smddp where numbers are at their limits, in all its calls that reduce. Between
hosts: tests/unit/smddp/collectives/between_hosts_test.cc."""

from __future__ import annotations

DDP = {"ddp": True}


def test_nan_wins_in_minima_and_maxima_whichever_rank_has_it(pool):
    pool(4).run("smddp_number_jobs:extremes", DDP)


def test_an_average_is_there_where_the_sum_is_beyond_the_type(pool):
    pool(4).run("smddp_number_jobs:averages", DDP)

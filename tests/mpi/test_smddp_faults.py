# SPDX-License-Identifier: Apache-2.0
"""smddp and what cannot work: calls that differ, that nobody ends, that are given up."""

from __future__ import annotations

import re

import pytest
from launching import run_mpi

DDP = {"ddp": True}


@pytest.mark.parametrize(
    ("name", "others", "rank_2"),
    [
        ("types", "all_reduce #0 of float32 [5], sum", "all_reduce #0 of float64 [5], sum"),
        ("types of one size", "broadcast #0 of float32 [5], root 0", "broadcast #0 of int32 [5]"),
        ("types of one width", "of float32 [10], root 0", "of complex64 [5], root 0"),
        ("types without arithmetic", "of float8_e4m3fn [6], root 0", "of float8_e5m2 [6], root 0"),
        ("types of what is swapped", "all_to_all #0 of float32", "all_to_all #0 of int32"),
        ("types of much", "of float16 [500000], sum", "of bfloat16 [500000], sum"),
        ("sizes", "all_gather #0 of float32 [5]", "all_gather #0 of float32 [6]"),
        ("operations", "[5], sum", "[5], max"),
        ("roots", "root 0", "root 1"),
        ("calls", "all_reduce #0", "barrier #0"),
    ],
)
def test_calls_that_differ_are_an_error_that_says_who_called_what(pool, name, others, rank_2):
    for found in mismatches(pool):
        calls = found[name].split("do not make the same call: ")[1].split("; ")
        assert len(calls) == 2
        of_others = next(call for call in calls if call.startswith("rank(s) 0, 1, 3 called "))
        of_rank_2 = next(call for call in calls if call.startswith("rank(s) 2 called "))
        assert others in of_others
        assert rank_2 in of_rank_2


_found: list[dict[str, str]] = []


def mismatches(pool) -> list[dict[str, str]]:
    """All of them in one run."""
    if not _found:
        _found.extend(pool(4).run("smddp_fault_jobs:mismatches", DDP))
    return _found


def test_the_rank_whose_process_held_the_store_is_named():
    outcome = run_mpi(3, "store_loss_job.py")

    told = re.findall(r"rank (\d) was told: (.*)", outcome.output)
    assert sorted(rank for rank, _ in told) == ["1", "2"], outcome.output
    for _, text in told:
        assert "rank 0" in text or "rank(s) 0" in text, text


def test_a_first_message_after_the_end_of_the_store_names_it_at_once():
    outcome = run_mpi(3, "store_loss_job.py", "first_message")

    told = re.findall(r"rank (\d) was told after (\S+) s: (.*)", outcome.output)
    assert sorted(rank for rank, _, _ in told) == ["1", "2"], outcome.output
    for _, seconds, text in told:
        assert re.search("the job's store does not answer (at|for) ", text)
        assert "rank 0 of the job unless a launcher did" in text
        assert float(seconds) < 30  # limit: 60. A server that ends just now is dialed for a while


def test_rows_that_do_not_fit_are_an_error_that_names_the_pair(pool):
    for found in mismatches(pool):
        assert "no error" not in found["rows of a pair"]
        assert "rank 0" in found["rows of a pair"] and "rank 1" in found["rows of a pair"]


def test_what_can_never_work_is_refused_by_the_call_and_breaks_nothing(pool):
    for found in pool(4).run("smddp_fault_jobs:refused", DDP):
        assert "Float [4] beside one of Float [5]" in found["gathered sizes"]
        assert found["gathered sizes"].startswith("ValueError")
        assert "Float [5] is not 4 times Float [5]" in found["a part too large"]
        assert found["bits of floats"].startswith("TypeError")
        assert "sparse tensors can be added and averaged only" in found["sparse"]


def test_a_receive_of_another_size_or_type_says_who_sent_what(pool):
    found, *_ = pool(4).run("smddp_fault_jobs:received_others", DDP)

    assert "rank 1 sent 12 bytes where 20 were expected" in found["less"]
    assert "rank 1 sent 1200000 bytes where 1200004 were expected" in found["much less"]
    for name, expected in (("more", 12), ("much more", 1_200_000)):
        assert "rank 1 sent" in found[name]
        assert f"{expected} " in found[name]
    for name in ("type", "type of any"):
        assert "rank 1 sent Float where Int was expected" in found[name]


def test_an_aborted_group_ends_calls_that_wait_and_says_who_did_it(pool):
    for rank, found in enumerate(pool(4).run("smddp_fault_jobs:aborted", DDP)):
        for name in ("by another rank", "afterwards"):
            assert found[name].startswith("DistBackendError")
            assert "rank 3 aborted the group" in found[name]
        if rank == 0:
            assert "rank 0 aborted the group" in found["by another thread"]
        assert found["a receive"].count("rank 2 aborted the group") == 2


def test_a_group_that_is_destroyed_waits_for_its_timeout_and_no_longer(pool):
    for rank, found in enumerate(pool(4).run("smddp_fault_jobs:destroyed", DDP)):
        assert float(found["seconds"]) < 20
        if rank != 3:
            assert found["pending"].startswith("DistBackendError")


def test_timeouts_of_groups_and_calls_name_the_rank_that_did_not_come(pool):
    for found in pool(4).run("smddp_fault_jobs:late", DDP)[:3]:
        for name in ("timeout of the group", "timeout of the call"):
            assert "2000 ms for rank(s) 3, which did not take part" in found[name]
        assert "recv from rank 3 (tag 7): not done after 2000 ms" in found["a receive"]
        assert "no error" not in found["timeout of the wait"]


def test_sequence_numbers_count_the_calls_of_a_group_alike_on_all_ranks(pool):
    for numbers in pool(4).run("smddp_fault_jobs:sequence_numbers", DDP):
        assert numbers == [0, 1, 2, 3]


def test_coalesced_calls_do_what_they_do_alone(pool):
    pool(4).run("smddp_fault_jobs:coalesced", DDP)


def test_monitored_barrier_fails_fast_or_names_all_ranks_that_did_not_come(pool):
    results = pool(4).run("smddp_fault_jobs:monitored", DDP)

    for found in results[:2]:
        assert "rank 2 has left the group" in found["wait_all_ranks=False"]
        assert "2000 ms for rank(s) 2, 3, which did not take part" in found["wait_all_ranks=True"]
        # Torch 2.15 lets any backend have it, before it refused by itself.
        own = ("which did not take part", "only implemented for GLOO")
        assert any(text in found["torch.distributed"] for text in own)
    assert "rank 2 has left the group" in results[3]["wait_all_ranks=False"]
    assert "rank(s) 2, 3, which did not take part" in results[3]["wait_all_ranks=True"]


def test_a_peer_that_has_left_is_told_of_at_once_and_its_last_messages_arrive(pool):
    results = pool(4).run("smddp_fault_jobs:left", DDP)

    expected = {
        0: {
            "a receive afterwards": "recv from rank 3 (tag 0): it has left the group",
            "a send to a rank that was heard of": "send to rank 3 (tag 0): it has left the group",
            "a long send": "send to rank 3 (tag 0): it has left the group",
            "a receive from any": "recv from any rank (tag 9): all other ranks have left the group",
        },
        1: {"a receive": "recv from rank 3 (tag 0): it has left the group"},
        2: {"a send": "send to rank 3 (tag 0): it has left the group"},
        3: {},
    }
    for rank, texts in expected.items():
        found = results[rank]
        assert float(found["seconds"]) < 30  # limit: 60
        assert set(found) == {*texts, "seconds"}
        for name, text in texts.items():
            assert text in found[name]


def test_a_rank_that_ends_waits_for_the_calls_that_it_has_made(pool):
    assert set(pool(4).run("smddp_fault_jobs:ended_with_a_call_pending", DDP, False)) == {
        "no error"
    }


def test_a_rank_that_fails_ends_its_calls_everywhere(pool):
    for text in pool(4).run("smddp_fault_jobs:ended_with_a_call_pending", DDP, True):
        assert "rank 3 has ended the group with collectives pending" in text


def test_torch_compares_calls_by_itself_in_its_debug_mode(pool):
    for text in pool(4).run("smddp_fault_jobs:with_details", DDP):
        assert "no error" not in text
        assert "Rank" in text or "rank" in text

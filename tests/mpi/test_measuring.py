# SPDX-License-Identifier: Apache-2.0
"""SMP_METRICS and SMP_TRACE of a job of two ranks."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from launching import run_mpi
from timelines import spans_in


def test_metrics_and_timeline_of_a_pipeline(tmp_path: Path) -> None:
    metrics, folder = tmp_path / "metrics.jsonl", tmp_path / "trace"

    outcome = run_mpi(2, "measured.py", SMP_METRICS=str(metrics), SMP_TRACE=str(folder))

    assert outcome.code == 0, outcome.output
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [step["step"] for step in steps] == [1, 2, 3]
    for step in steps:
        assert step["global_batch_size"] == 16
        assert step["samples_per_second"] * step["seconds"] > 15.9
        assert step["loss"] > 0
        assert 0 < step["pipeline_use"] <= 1
        assert 0 <= step["data_wait_share"] < 1
        assert step["bytes_sent"] > 0
    assert "step 1: loss " in outcome.output
    forward = re.search(r"forward of (\d+) operations", outcome.output)
    assert forward
    assert {step["flops"] for step in steps} == {3 * int(forward[1])}

    (file,) = folder.iterdir()
    events = json.loads(file.read_text())
    spans = list(spans_in(file))
    assert {rank for rank, _ in spans} == {0, 1}
    assert {span["cat"] for _, span in spans} >= {"forward", "backward", "wait", "data"}
    (host,) = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert file.name == f"trace-{host}.json"
    sent = Counter(event["id"] for event in events if event["ph"] == "b")
    assert sent == Counter(event["id"] for event in events if event["ph"] == "e")
    assert any("blocks" in event["name"] for event in events), "modules are named"


def test_silence(tmp_path: Path) -> None:
    outcome = run_mpi(2, "measured.py", SMP_PROGRESS="off")

    assert outcome.code == 0, outcome.output
    assert "samples/s" not in outcome.output


@pytest.mark.parametrize("partitions", [1, 2])
def test_loss_is_the_mean_over_replicas(tmp_path: Path, partitions: int) -> None:
    file = tmp_path / "metrics.jsonl"

    outcome = run_mpi(2 * partitions, "replica_losses.py", str(partitions), SMP_METRICS=str(file))

    assert outcome.code == 0, outcome.output
    steps = [json.loads(line) for line in file.read_text().splitlines()]
    alone, mean = (2.0, 1), (5.0, 2)  # losses 2 and 8; gradients meet in every second step
    assert [(step["loss"], step["loss_ranks"]) for step in steps] == [
        *(alone, mean, alone, mean),
        alone,  # the evaluation
        *(alone, mean, alone, alone),  # the other replica has two batches
    ]
    assert [step["evaluation"] for step in steps] == [False] * 4 + [True] + [False] * 4
    assert "evaluation after step 4: loss 2, mean of 1 step of the first replica" in outcome.output
    started = Counter(re.findall(r"rank \d+ exchanged (\d+)", outcome.output))
    assert started == {"4": 2, **({"0": 2} if partitions > 1 else {})}, "first partitions alone"


def test_no_rank_pays_for_what_the_first_does_not_report(tmp_path: Path) -> None:
    outcome = run_mpi(
        2, "replica_losses.py", "1", "silent", SMP_METRICS=str(tmp_path / "metrics.jsonl")
    )

    assert outcome.code == 0, outcome.output
    assert outcome.output.count("exchanged 0") == 2, outcome.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("way", "kinds"),
    [
        ("sharded", {"gather", "reduce", "optimizer"}),
        ("tensor", {"exchange", "optimizer"}),
        ("replicas", {"reduce", "optimizer"}),
    ],
)
def test_each_way_of_training_shows_what_it_waits_for(
    tmp_path: Path, way: str, kinds: set[str]
) -> None:
    records, folder = tmp_path / "records", tmp_path / "trace"

    outcome = run_mpi(2, "recorded.py", way, SMP_RECORDS=str(records), SMP_TRACE=str(folder))

    assert outcome.code == 0, outcome.output
    (file,) = folder.iterdir()
    spans = list(spans_in(file))
    for rank in range(2):
        own = {span["cat"] for of, span in spans if of == rank}
        assert own >= {"forward", "data", *kinds}
        lines = [json.loads(line) for line in (records / f"rank-{rank}.jsonl").open()]
        header = lines[0]
        assert (header["rank"], header["format"]) == (rank, 1)
        sums = [
            dict(zip(header["columns"], row, strict=True)) for row in lines if type(row) is list
        ]
        assert sum(row["steps"] for row in sums) == 6
        assert all(row["samples"] == 8 * row["steps"] for row in sums)
        assert all(row["bytes"] > 0 for row in sums)
        assert all(sum(row[f"{kind}_us"] for row in sums) > 0 for kind in kinds)
        (last, *_) = [line["traffic"] for line in reversed(lines) if "traffic" in line]
        assert [to for to, _, _ in last] == [1 - rank]
        assert {line["spans"]["step"] for line in lines if "spans" in line} == {1, 2, 5}
        assert any("job" in line for line in lines)
        assert any("memory" in line for line in lines)


def test_a_killed_rank_leaves_whole_files(tmp_path: Path) -> None:
    records, folder = tmp_path / "records", tmp_path / "trace"

    outcome = run_mpi(
        2, "recorded.py", "replicas", "killed", SMP_RECORDS=str(records), SMP_TRACE=str(folder)
    )

    assert outcome.code != 0
    (file,) = folder.iterdir()
    assert json.loads(file.read_text())
    rows = [json.loads(line) for line in (records / "rank-1.jsonl").read_text().splitlines()]
    assert any(type(row) is list for row in rows)

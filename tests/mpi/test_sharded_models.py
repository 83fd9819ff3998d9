# SPDX-License-Identifier: Apache-2.0
"""Models that people train, sharded: beside FSDP2 and DeepSpeed, and under all that goes
together."""

from __future__ import annotations

import functools
import itertools
import json
import os

import pytest
import torch
from jobs import real_models
from launching import peers_python, run_torchrun
from smdistributed import _runtime

pytest.importorskip("transformers", reason="the models are of transformers")

LONG = os.environ.get("SMP_LONG_TESTS") == "1"
RANKS, STEPS, ROWS = 4, 4, 8
BASE = {"ddp": True, "sdp_param_persistence_threshold": 40, "sdp_gradient_clipping": 0}


@pytest.mark.parametrize(
    ("kind", "degree"),
    list(itertools.product(["gpt2", "vit"], [2, 4])) if LONG else [("gpt2", 2), ("vit", 4)],
)
def test_losses_are_those_of_fsdp(pool, kind, degree):
    settings = {**BASE, "sharded_data_parallel_degree": degree}

    results = pool(RANKS).run("sharded_model_jobs:beside_fsdp", settings, kind, 10, ROWS)

    for ours, theirs in results:
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-5, atol=0)
        assert len(ours) == 10


@pytest.mark.skipif(peers_python() is None, reason="no DeepSpeed here: ci/peers installs it")
def test_losses_are_those_of_deepspeed():
    """The job of ci/bench mics: ten optimizer steps of four micro-steps."""
    ours, theirs = ["ours, k=2", *(["ours, k=4"] if LONG else [])], "DeepSpeed, ZeRO-3"

    outcome = run_torchrun(RANKS, "../../bench/jobs/micro_steps_job.py", "8", "4",
                           *ours, theirs, python=peers_python(),
                           DS_ACCELERATOR="cpu", SMP_PROGRESS="off")  # fmt: skip

    assert outcome.code == 0, outcome.output
    losses = json.loads(outcome.output.split("RESULT ")[1].splitlines()[0])["losses"]
    expected = torch.tensor(losses[theirs])
    assert expected.shape == (10, 4)
    for who in ours:
        torch.testing.assert_close(torch.tensor(losses[who]), expected, rtol=1e-5, atol=0)


# --- Compositions ---

SETTINGS = {
    "partitions": {"partitions": 2, "microbatches": 2},
    "sharded_data_parallel_degree": {"sharded_data_parallel_degree": 2},
    "shard_optimizer_state": {"shard_optimizer_state": True},
    "fp16": {"fp16": True},
    "bf16": {"bf16": True},
    "offload_activations": {"offload_activations": True},
    "delayed_parameter_initialization": {"delayed_parameter_initialization": True},
    "deterministic_server": {"deterministic_server": True},
}


def excluded() -> set[frozenset[str]]:
    """Pairs of keys that the table refuses."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in _runtime.compositions_as_markdown().splitlines()
        if line.startswith("| **")
    ]
    keys = [row[0].split("`")[1] for row in rows]
    return {
        frozenset((one, other))
        for one, row in zip(keys, rows, strict=True)
        for other, cell in zip(keys, row[1:], strict=True)
        if cell.startswith("no")
    }


def compositions() -> list[tuple[str, ...]]:
    """All sets of features of which no two exclude each other."""
    refused = excluded()
    assert frozenset(("fp16", "bf16")) in refused
    return [
        chosen
        for count in range(len(SETTINGS) + 1)
        for chosen in itertools.combinations(SETTINGS, count)
        if not any(frozenset(pair) in refused for pair in itertools.combinations(chosen, 2))
    ]


def few(every: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """So many that each pair of features is in one of them."""
    left = {pair for chosen in every for pair in itertools.combinations(chosen, 2)}
    taken = []
    while left:
        best = max(every, key=lambda one: len(left & set(itertools.combinations(one, 2))))
        taken.append(best)
        left -= set(itertools.combinations(best, 2))
    return taken


EVERY = compositions()
ROUNDED = [chosen for chosen in EVERY if {"fp16", "bf16"} & set(chosen)]
EXACT = [chosen for chosen in EVERY if chosen not in ROUNDED]
CHOSEN = (
    [(kind, chosen) for kind in ("gpt2", "vit") for chosen in EVERY]
    if LONG
    else [(("gpt2", "vit")[n % 2], one) for n, one in enumerate([*few(EXACT), *few(ROUNDED)])]
)


@functools.cache
def alone(kind: str) -> tuple[list[list[float]], dict[str, torch.Tensor]]:
    return real_models.train_alone(kind, STEPS, ROWS, microbatches=RANKS)


@pytest.mark.parametrize(
    ("kind", "chosen"), CHOSEN, ids=lambda one: one if isinstance(one, str) else "+".join(one)
)
def test_models_learn_under_all_that_goes_together(pool, kind, chosen):
    settings = dict(BASE)
    for feature in chosen:
        settings |= SETTINGS[feature]
    microbatches = settings.get("microbatches", 1)

    results = pool(RANKS).run("sharded_model_jobs:train", settings, kind, STEPS, ROWS)

    wanted, state = alone(kind)
    # Doubles: only sums are ordered otherwise. In 16 bits a number has 8 bits, or 11; a loss is
    # some ten roundings from its exact value.
    close = 0.05 if {"fp16", "bf16"} & set(chosen) else 1e-9
    partitions = settings.get("partitions", 1)
    for rank, (losses, own_state) in enumerate(results):
        replica = rank // partitions
        for step, both in enumerate(wanted):
            mine = both[replica * microbatches : (replica + 1) * microbatches]
            torch.testing.assert_close(
                torch.tensor(losses[step]), torch.tensor(mine), rtol=close, atol=close
            )
        assert own_state.keys() == state.keys()
        if close < 1e-6:
            for name, value in state.items():
                torch.testing.assert_close(own_state[name], value, rtol=1e-8, atol=1e-8)


@pytest.mark.skipif(not LONG, reason="1,000 steps: with --long only")
@pytest.mark.parametrize("degree", [2, 4])
def test_a_thousand_steps_take_no_more_memory_than_a_hundred(pool, degree):
    settings = {**BASE, "sharded_data_parallel_degree": degree}

    results = pool(RANKS).run("sharded_model_jobs:watch_memory", settings, "gpt2", 1000, 100)

    for found in results:
        resident, ledgers = zip(*found, strict=True)
        assert len(resident) == 10
        # Activations are a difference of what the allocator has out, in whatever blocks it had at
        # hand.
        activations = [ledger.pop("activations") for ledger in ledgers]
        assert max(activations) < 1.05 * min(activations)
        assert all(ledger == ledgers[0] for ledger in ledgers)
        # A message, or a tensor of the smallest layer, kept each step would be several times that.
        assert resident[-1] - resident[1] < 800 * 1024, resident

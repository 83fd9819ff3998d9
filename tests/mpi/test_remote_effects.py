# SPDX-License-Identifier: Apache-2.0
"""Effects of a module of another partition, besides returning, reach its caller."""

import pytest
import torch
from jobs.effect_jobs import (
    READS,
    THINGS,
    Net,
    encoder_alone,
    llama_alone,
    made,
    padded_batch,
    train_alone,
    words,
)

CONFIG = {
    "partitions": 2,
    "microbatches": 2,
    "auto_partition": False,
    "default_partition": 0,
}
WAYS = [
    *THINGS,
    "attribute",
    "attribute_with_structure",
    "attribute_deleted",
    "buffer",
    "child_attribute",
    "set_by_caller",
    "in_place",
    "view_in_place",
    "context",
    "context_set",
    "context_input",
]


@pytest.mark.parametrize("way", WAYS)
def test_what_a_remote_module_tells_is_known_to_its_caller_with_its_gradient(pool, way):
    results = pool(2).run("effect_jobs:train", CONFIG, way)

    losses, gradients = train_alone(made(Net, way))
    seen = set()
    for own_losses, own_gradients in results:
        assert own_losses == pytest.approx(losses, rel=1e-12)
        for name, gradient in own_gradients.items():
            torch.testing.assert_close(gradient, gradients[name], rtol=1e-12, atol=1e-14)
        seen |= own_gradients.keys()
    assert seen == gradients.keys()


@pytest.mark.parametrize(
    ("way", "text"),
    [
        ("functional_call", "module far of partition 1 was called while its parameter far.weight"),
        ("gradient", "a backward that is not the step's own leads through a module of rank 1"),
        ("gradient_without_graph", "a backward that is not the step's own leads through"),
        ("lost_variable", "context variable LOST has been set since the step began"),
        ("retain_graph", "with pipeline_parallel_degree=2 a graph can be gone back through once"),
        ("clamp", "weight was read or written, and its values are on partition"),
        *((way, "weight was read or written, and its values are on partition") for way in READS),
    ],
)
def test_what_another_partition_cannot_know_is_refused_by_name(pool, way, text):
    for error in pool(2).run("effect_jobs:refuse", CONFIG, way, fails=True):
        assert text in error


@pytest.mark.parametrize(
    ("way", "what"),
    [
        ("attribute", "attribute history of module far"),
        ("global", "FILLED of the forward of module far"),
        ("closure", "seen of a hook of module far"),
        ("partial", "an argument of a hook of module far"),
        ("object", "outputs of Listener, a hook of module far"),
        ("nothing", None),
    ],
)
def test_a_container_that_only_the_modules_rank_fills_is_warned_of(pool, way, what):
    caller, owner = pool(2).run("effect_jobs:keep", CONFIG, way)

    assert caller == []
    assert len(owner) == (what is not None)
    assert all(f"filled a container that stays here: {what}. " in text for text in owner)


def test_torchs_encoder_evaluates_over_partitions_as_in_one_process(pool):
    results = pool(2).run("effect_jobs:evaluate_encoder", CONFIG)

    x, padding = padded_batch()
    with torch.no_grad():
        expected = encoder_alone()(x, src_key_padding_mask=padding)
    for output in results:  # values at padding do not count
        torch.testing.assert_close(output[:, :2], expected[:, :2])


def test_transformers_records_and_caches_over_partitions_as_in_one_process(pool):
    results = pool(2).run("effect_jobs:record_and_generate", CONFIG)

    model = llama_alone(place=False)
    with torch.no_grad():
        out = model(input_ids=words(), output_hidden_states=True, output_attentions=True)
        tokens = model.generate(input_ids=words(), max_new_tokens=4, do_sample=False)
    expected = [*out.hidden_states, *out.attentions]
    for recorded, generated in results:
        assert len(recorded) == len(expected) == 5
        for one, other in zip(recorded, expected, strict=True):
            torch.testing.assert_close(one, other)
        assert torch.equal(generated, tokens)


@pytest.mark.parametrize("whose", ["root", "child"])
def test_a_counter_that_microbatches_share_is_named(pool, whose):
    settings = {"partitions": 2, "auto_partition": False, "default_partition": 0, "microbatches": 2}

    driver, other = pool(2).run("counter_jobs:count", settings, whose)

    assert len(driver) == (whose == "root")
    assert all("module (root) sets its attribute calls to a number" in text for text in driver)
    assert other == []

# SPDX-License-Identifier: Apache-2.0
"""Models of Hugging Face under tensor parallelism: they learn what the plain ones learn."""

from __future__ import annotations

import functools
import os

import pytest
import torch
from jobs import hugging_face_jobs

LONG = os.environ.get("SMP_LONG_TESTS") == "1"
KINDS = ["gpt2", "gptj", "gptneo", "bert", "roberta"]


@functools.cache
def alone(kind):
    return hugging_face_jobs.train_alone(kind)


def settings(degree, **others):
    return {
        "tensor_parallel_degree": degree,
        "ddp": True,
        "microbatches": 2,
        "_match_weights": True,
        **others,
    }


def assert_same(results, expected):
    """The models are of doubles, but Transformers and some layers compute scores and norms in 32
    bits: rounded by 6e-8 of values about 1, which five steps and their sums make larger.
    """
    for seen in results:
        close(torch.tensor(seen["losses"]), torch.tensor(expected["losses"]), "losses", 1e-6)
        for part, allowed in (("gradients", 1e-6), ("state", 1e-5)):
            assert seen[part].keys() == expected[part].keys()
            for name, value in expected[part].items():
                close(seen[part][name], value, f"{part} {name}", allowed)


def close(seen, expected, what, allowed):
    torch.testing.assert_close(
        seen, expected, rtol=0, atol=allowed, msg=lambda text: f"{what}: {text}"
    )


@pytest.mark.parametrize(
    ("degree", "optimize", "prescaled"), [(2, "memory", False), (4, "speed", True)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_learns_what_the_plain_one_learns(pool, kind, degree, optimize, prescaled):
    config = settings(degree, optimize=optimize, prescaled_batch=prescaled)

    results = pool(degree).run("hugging_face_jobs:train", config, kind)

    assert_same(results, alone(kind))


@pytest.mark.parametrize("kind", KINDS if LONG else ["gpt2", "bert"])
def test_pipeline_tensor_and_data_parallelism_together_learn_the_same(pool, kind):
    config = settings(2, partitions=2, prescaled_batch=True)

    results = pool(8).run("hugging_face_jobs:train", config, kind)

    assert_same(results, alone(kind))
    for seen in results:
        assert seen["distributed"]


def test_a_model_without_a_head_keeps_the_scripts_own(pool):
    results = pool(2).run("hugging_face_jobs:train", settings(2), "gpt2_without_head")

    assert_same(results, alone("gpt2_without_head"))
    assert results[0]["distributed"][0] == "DistributedTransformerLMHead"
    assert {"head.weight", "model.word_embedding.weight"} <= results[0]["named"]


def test_a_head_that_is_not_tied_to_the_embedding_learns_for_itself(pool):
    results = pool(2).run("hugging_face_jobs:train", settings(2), "gpt2_untied")

    assert_same(results, alone("gpt2_untied"))
    assert results[0]["distributed"][0] == "DistributedTransformerLMHead"


def test_bert_has_its_encoder_and_its_plain_layers_split(pool):
    results = pool(2).run("hugging_face_jobs:train", settings(2), "bert")

    kinds = results[0]["distributed"]
    assert kinds.count("DistributedTransformer") == 1
    assert kinds.count("DistributedTransformerLayer") == hugging_face_jobs.LAYERS
    assert kinds.count("DistributedEmbedding") == 2, "of positions and types; words are tied"
    assert kinds.count("DistributedLinear") == 1, "of the head; the decoder is tied"


@pytest.mark.parametrize(
    ("kind", "saved", "loaded"),
    [("gpt2", 2, 4), ("gpt2", 4, 1), ("gpt2", 1, 2), ("bert", 4, 2), ("bert", 2, 1)],
)
def test_a_checkpoint_in_parts_goes_on_with_another_degree(pool, tmp_path, kind, saved, loaded):
    folder = str(tmp_path)
    pool(4).run("hugging_face_jobs:train_and_save", settings(saved), kind, folder, True)
    results = pool(4).run(
        "hugging_face_jobs:resume_and_train", settings(loaded), kind, folder, True
    )

    assert_same(results, alone(kind))


def test_a_checkpoint_in_parts_goes_on_with_activations_laid_out_otherwise(pool, tmp_path):
    folder = str(tmp_path)
    before = settings(2, optimize="memory", partitions=2)
    after = settings(2, optimize="speed")
    pool(4).run("hugging_face_jobs:train_and_save", before, "gpt2", folder, True)
    results = pool(4).run("hugging_face_jobs:resume_and_train", after, "gpt2", folder, True)

    assert_same(results, alone("gpt2"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_checkpoint_is_what_hugging_face_reads(pool, tmp_path, kind):
    folder = str(tmp_path)
    trained = pool(2).run("hugging_face_jobs:train_and_save", settings(2), kind, folder, False)

    entries = torch.load(tmp_path / "half", weights_only=True)
    hugging_face_jobs.made(kind).load_state_dict(entries)
    for name, value in trained[0]["state"].items():
        assert torch.equal(entries[name], value), name

    loaded = pool(4).run("hugging_face_jobs:loaded_state", settings(4), kind, folder)
    for name, value in entries.items():
        assert torch.equal(loaded[0][name], value), name


def test_a_scripts_own_class_is_replaced_through_its_hooks_bit_by_bit(pool):
    expected = hugging_face_jobs.scripts_own_class_alone()

    results = pool(2).run("hugging_face_jobs:scripts_own_class", settings(2))

    outputs = [seen["outputs"] for seen in results]
    assert [seen["kind"] for seen in results] == ["DistributedLinear"] * 2
    assert torch.equal(torch.cat(outputs), expected["outputs"])
    for seen in results:  # averaged over two microbatches and two ranks
        assert torch.equal(4 * seen["gradient"], expected["gradient"])


def test_values_of_delayed_parameters_are_matched_bit_by_bit(pool):
    config = settings(2, delayed_parameter_initialization=True)

    results = pool(2).run("hugging_face_jobs:created", config)

    for name, value in hugging_face_jobs.created_alone().items():
        for seen in results:
            assert seen[name].dtype == value.dtype
            assert torch.equal(seen[name], value), name


def test_an_optimizers_state_is_whole_and_comes_back_in_slices(pool):
    results = pool(2).run("hugging_face_jobs:optimizer_state", settings(2), "bert")

    gradients = alone("bert")["gradients"]
    for seen in results:
        assert seen["same"]
        moment = seen["moments"]["bert.encoder.seq_layers.1.output.dense1.weight"]
        gradient = gradients["bert.encoder.layer.1.intermediate.dense.weight"]
        close(moment, 0.1 * gradient, "the first moment after one step", 1e-7)


def test_a_pretrained_state_dict_is_loaded_by_its_own_names(pool):
    results = pool(2).run("hugging_face_jobs:pretrained", {**settings(2), "_match_weights": False})

    assert results == [True, True]


def test_other_data_on_a_tensor_rank_is_an_error_with_prescaled_batches(pool):
    texts = pool(2).run(
        "hugging_face_jobs:fed_otherwise", settings(2, prescaled_batch=True), 0, fails=True
    )

    for text in texts:
        assert "prescaled_batch is true" in text
        assert "argument ids has other values on rank 1 than on rank 0" in text


def test_other_shapes_on_a_tensor_rank_are_an_error(pool):
    texts = pool(2).run("hugging_face_jobs:fed_otherwise", settings(2), 1, fails=True)

    for text in texts:
        assert "argument ids is (4, 7) torch.int64 on rank 0 and (4, 8) torch.int64" in text


def test_heads_that_do_not_divide_are_an_error_with_module_and_numbers(pool):
    texts = pool(4).run("hugging_face_jobs:train", settings(4), "gpt2_of_three_heads", fails=True)

    for text in texts:
        assert "no annotated transformer can be split" in text
        assert "(root): its num_attention_heads is 3, which 4 tensor ranks do not divide" in text

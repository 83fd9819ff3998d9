# SPDX-License-Identifier: Apache-2.0
"""Annotations count with tensor_parallel_degree 1, too: modules are replaced, values stay."""

from __future__ import annotations

import functools
import json

import pytest
import torch

pytest.importorskip("transformers", reason="the models are of transformers")

from jobs import hugging_face_jobs
from smdistributed.modelparallel.torch.sharded_data_parallel_checkpoint import (
    get_full_state_dict_from_sharded_data_parallel_checkpoint,
)

PLAIN = {"ddp": True, "microbatches": 2}
SHARDED = {**PLAIN, "sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0,
           "sdp_param_persistence_threshold": 40}  # fmt: skip
TENSOR = {**PLAIN, "tensor_parallel_degree": 2, "_match_weights": True}

#: Settings, and whether the model is annotated; all on two ranks.
WAYS = {
    "tensor": (TENSOR, True),
    "tensor, whole activations": ({**TENSOR, "optimize": "speed"}, True),
    "annotated": (PLAIN, True),
    "plain": (PLAIN, False),
    "annotated pipeline": ({**PLAIN, "partitions": 2}, True),
    "annotated shards": (SHARDED, True),
    "shards": (SHARDED, False),
    "annotated optimizer state": ({**PLAIN, "shard_optimizer_state": True}, True),
}


@functools.cache
def alone(kind):
    return hugging_face_jobs.train_alone(kind)


def close(seen, expected, what, allowed):
    torch.testing.assert_close(
        seen, expected, rtol=0, atol=allowed, msg=lambda text: f"{what}: {text}"
    )


def assert_same(results, expected):
    """As close as in test_hugging_face.py, and for the same reasons."""
    for seen in results:
        close(torch.tensor(seen["losses"]), torch.tensor(expected["losses"]), "losses", 1e-6)
        assert seen["state"].keys() == expected["state"].keys()
        for name, value in expected["state"].items():
            close(seen["state"][name], value, name, 1e-5)


@pytest.mark.parametrize(("ranks", "others"), [
    (1, {}), (2, {}), (2, {"partitions": 2}), (2, SHARDED),
], ids=str)  # fmt: skip
def test_a_script_finds_the_layers_of_a_distributed_transformer(pool, ranks, others):
    (plain,) = pool(1).run("one_tensor_rank_jobs:published_script", PLAIN, False)

    results = pool(ranks).run("one_tensor_rank_jobs:published_script", {**PLAIN, **others}, True)

    for seen in results:
        assert seen["layers"] == ["DistributedTransformerLayer"] * hugging_face_jobs.LAYERS
    assert plain["losses"][-1] < plain["losses"][0]
    assert_same(results, plain)


def test_layers_give_the_bits_of_plain_ones(pool):
    (plain,) = pool(1).run("one_tensor_rank_jobs:integer_layers", PLAIN, False)

    (seen,) = pool(1).run("one_tensor_rank_jobs:integer_layers", PLAIN, True)

    assert plain["types"] == ["Embedding", "Linear", "Linear", "Linear"]
    assert seen["types"] == ["DistributedEmbedding", *["DistributedLinear"] * 3]
    assert torch.equal(seen["output"], plain["output"])
    for name, gradient in plain["gradients"].items():
        found = seen["gradients"][name]
        assert (found is None) == (gradient is None) == (name == "before.bias")
        assert found is None or torch.equal(found, gradient), name
    for name, value in plain["state"].items():
        assert torch.equal(seen["state"][name], value), name
    assert set(seen["moved"]) == {"cpu"}


@pytest.mark.parametrize("kind", ["gpt2", "bert", "gptj"])
def test_models_learn_what_plain_ones_learn(pool, kind):
    results = pool(2).run("hugging_face_jobs:train", PLAIN, kind)

    assert_same(results, alone(kind))
    assert all(seen["distributed"] for seen in results)


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
@pytest.mark.parametrize("others", [{}, {"partitions": 2}, SHARDED], ids=str)
def test_delayed_values_are_those_of_the_plain_model_bit_by_bit(pool, kind, others):
    config = {**PLAIN, **others, "delayed_parameter_initialization": True}

    results = pool(2).run("hugging_face_jobs:created", config, kind)

    for name, value in hugging_face_jobs.created_alone(kind).items():
        for seen in results:
            assert seen[name].dtype == value.dtype
            assert torch.equal(seen[name], value), name


def test_a_class_with_other_parameters_begins_with_new_values_and_says_so(pool):
    (result,) = pool(1).run("one_tensor_rank_jobs:of_other_names", PLAIN)

    kind, said = result
    assert kind == "DistributedEmbedding"
    (line,) = said
    assert "module 0 begins with new values" in line
    assert "no values for weight (1 in all) of DistributedEmbedding in Odd" in line


# --- Checkpoints ---

ON = [
    ("tensor", "annotated"), ("tensor", "plain"), ("annotated", "tensor"), ("plain", "tensor"),
    ("annotated", "plain"), ("plain", "annotated"), ("annotated", "annotated"),
    ("annotated pipeline", "plain"), ("tensor", "annotated pipeline"),
    ("annotated shards", "annotated shards"), ("annotated shards", "shards"),
    ("tensor", "annotated shards"), ("shards", "annotated optimizer state"),
]  # fmt: skip
MORE = [
    ("annotated pipeline", "tensor, whole activations"), ("plain", "annotated pipeline"),
    ("shards", "annotated shards"), ("annotated shards", "tensor"),
    ("annotated optimizer state", "plain"),
]  # fmt: skip


def save(pool, way, kind, folder):
    config, annotated = WAYS[way]
    return pool(2).run("hugging_face_jobs:train_and_save", config, kind, str(folder), True,
                       annotated)  # fmt: skip


def resume(pool, way, kind, folder):
    config, annotated = WAYS[way]
    return pool(2).run("hugging_face_jobs:resume_and_train", config, kind, str(folder), True,
                       annotated)  # fmt: skip


@pytest.fixture(scope="module")
def saved(pool, tmp_path_factory):
    """Folders that jobs wrote; made when asked for."""

    @functools.cache
    def by(way, kind):
        folder = tmp_path_factory.mktemp("saved")
        save(pool, way, kind, folder)
        return folder

    return by


@pytest.mark.parametrize(
    ("before", "after"), [*ON, *(pytest.param(*one, marks=pytest.mark.long) for one in MORE)]
)
def test_checkpoints_go_on_whatever_was_replaced(pool, saved, before, after):
    results = resume(pool, after, "gpt2", saved(before, "gpt2"))

    assert_same(results, alone("gpt2"))


@pytest.mark.parametrize(("before", "after"), ON[1:5])
def test_so_do_those_of_models_of_which_parts_are_replaced(pool, saved, before, after):
    results = resume(pool, after, "bert", saved(before, "bert"))

    assert_same(results, alone("bert"))


def test_the_file_says_what_was_replaced(saved):
    (folder,) = saved("annotated", "gpt2").glob("*_partial")
    said = json.loads((folder / "slices.json").read_text())

    assert said["format"] == 2
    assert said["axes"] == {}, "one tensor rank slices nothing"
    assert said["replaced"] == {"": "DistributedTransformerLMHead"}
    assert not any(saved("plain", "gpt2").glob("*_partial/slices.json"))


@pytest.mark.parametrize(("before", "after"), [
    ("tensor", "annotated"), ("tensor", "tensor"), ("tensor", "tensor, whole activations"),
    ("plain", "annotated"),
])  # fmt: skip
def test_checkpoints_of_versions_that_did_not_say_it_go_on(pool, tmp_path, before, after):
    save(pool, before, "gpt2", tmp_path)
    (folder,) = tmp_path.glob("*_partial")
    if before == "tensor":
        slices = json.loads((folder / "slices.json").read_text())
        (folder / "slices.json").write_text(json.dumps({"axes": slices["axes"]}))
    (folder / "manifest.json").unlink()  # it has checksums

    assert_same(resume(pool, after, "gpt2", tmp_path), alone("gpt2"))


def test_shards_of_a_replaced_model_become_a_whole_one_without_a_job(pool, saved):
    folder = saved("annotated shards", "gpt2")

    found = get_full_state_dict_from_sharded_data_parallel_checkpoint(
        str(folder), dtype=torch.float64
    )

    assert found.keys() > {"word_embedding.weight", "transformer.seq_layers.0.output.dense1.weight"}
    assert (folder / "half_partial" / "model_0.pt").is_file()

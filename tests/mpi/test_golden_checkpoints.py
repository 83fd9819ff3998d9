# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that versions of the library wrote, read by this one: every value, to the bit.

tests/golden_checkpoints/COMMIT/FORM.tar.xz is what the library of that commit saved, and FORM.json
what the job held then; its README.md says how they were made.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from jobs.golden_jobs import BASE, COMPOSITIONS, TENSOR, sign

DATA = Path(__file__).resolve().parents[1] / "golden_checkpoints"
HUGGING_FACE = sorted(DATA.glob("*/hf_*.json"))
FORMS = sorted(set(DATA.glob("*/*.json")) - set(HUGGING_FACE))
#: Composition, other than the one that saved, in which a job goes on, beside one process.
ANOTHER = {
    "one": "sharded",
    "replaced": "tensor",
    "pipeline": "optimizer",
    "tensor": "tensor_sharded",
    "pipeline_tensor": "tensor",
    "sharded": "pipeline",
    "persistent": "optimizer",
    "optimizer": "persistent",
    "pipeline_optimizer": "sharded",
    "tensor_sharded": "tensor_optimizer",
    "tensor_optimizer": "pipeline_tensor",
}
#: It steps whole parameters.
ANOTHER_OF_ADAFACTOR = "pipeline"
#: Its files do not say how they are sliced: they are read by the degree that saved alone.
UNSLICED = DATA / "8b3a4a12" / "tensor.json"
SLICED = [form for form in FORMS if form != UNSLICED]
#: Other names of parameters.
TIED = {"5.weight": "4.weight"}


def name_of(form: Path) -> str:
    return f"{form.parent.name}-{form.stem}"


def unpack(form: Path, folder: Path) -> None:
    shutil.unpack_archive(form.with_suffix(".tar.xz"), folder)


def resumed(
    pool: Any, expected: dict[str, Any], folder: Path, where: str, **more: Any
) -> list[dict[str, Any]]:
    """By rank, what is there after resuming under the composition ``where``."""
    how = {**expected["how"], **more}
    ranks, settings, marked = COMPOSITIONS[where]
    precision = how.pop("precision", None)
    if not how.get("partial", True):
        how["load_optimizer"] = False
    if how.get("optimizers") == 0:
        how |= {"optimizers": 1, "load_optimizer": False}
    config = {**BASE, **settings, **({precision: True} if precision else {})}
    how["scaled"] = precision == "fp16"
    return list(pool(ranks).run("golden_jobs:resume", config, str(folder), marked, **how))


def rounded(value: Any, like: Any) -> Any:
    """Value in the precision of ``like``, if that has fewer bits."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        cast = torch.tensor(value).to(dtype).float()
        if torch.equal(cast, torch.tensor(like)):
            return like
    return value


def assert_restored(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """To the bit: values, and those of 32 bits where there are any, of which others are rounded;
    what the optimizer kept; its settings; and the user content."""
    truth = {name: expected["masters"].get(TIED.get(name, name), value)
             for name, value in expected["model"].items()}  # fmt: skip
    assert found["model"].keys() == truth.keys()
    for name, value in found["model"].items():
        is_rounded = TIED.get(name, name) in found["masters"]
        wanted = rounded(truth[name], value) if is_rounded else truth[name]
        assert value == wanted, name
    for name, value in found["masters"].items():
        assert value == truth[name], name
    if expected["how"].get("partial", True) and expected["how"].get("optimizers") != 0:
        assert found["state"].keys() == expected["state"].keys()
        for name, fields in expected["state"].items():
            assert found["state"][name] == fields, name
        assert json.loads(json.dumps(found["groups"])) == expected["groups"]
    assert found["content"] == expected["content"]
    if "scales" in found:
        assert found["scales"] == expected["scales"]


@pytest.mark.parametrize("form", FORMS, ids=name_of)
def test_the_job_that_saved_goes_on(pool, tmp_path, form):
    expected = json.loads(form.read_text())
    unpack(form, tmp_path)

    for found in resumed(pool, expected, tmp_path, expected["composition"]):
        assert_restored(found, expected)


@pytest.mark.parametrize("form", SLICED, ids=name_of)
def test_one_process_goes_on(pool, tmp_path, form):
    expected = json.loads(form.read_text())
    unpack(form, tmp_path)

    for found in resumed(pool, expected, tmp_path, "one", first=1):
        assert_restored(found, expected)


@pytest.mark.thorough
@pytest.mark.parametrize("form", SLICED, ids=name_of)
def test_a_job_of_another_composition_goes_on(pool, tmp_path, form):
    expected = json.loads(form.read_text())
    unpack(form, tmp_path)

    where = ANOTHER[expected["composition"]]
    if expected["how"].get("kind") == "Adafactor":
        where = ANOTHER_OF_ADAFACTOR
    for found in resumed(pool, expected, tmp_path, where, first=1):
        assert_restored(found, expected)


def test_slices_of_which_no_file_tells_are_refused_by_another_degree(pool, tmp_path):
    unpack(UNSLICED, tmp_path)

    errors = pool(1).run("golden_jobs:resume", BASE, str(tmp_path), False, fails=True)

    assert "tensor_parallel_degree 2 by a library that left no slices.json" in errors[0]


@pytest.mark.parametrize("composition", ["pipeline", "tensor"])
def test_objects_of_ranks_are_found_by_their_names(pool, tmp_path, composition):
    unpack(DATA / "555f3269" / f"objects_{composition}", tmp_path)
    ranks, settings, _ = COMPOSITIONS[composition]

    results = pool(ranks).run("golden_jobs:load_objects", {**BASE, **settings}, str(tmp_path))

    for found, wanted in (one for of_rank in results for one in of_rank):
        assert torch.equal(found.pop("values"), wanted.pop("values"))
        assert found == wanted


# --- Models of Hugging Face ---


@pytest.mark.parametrize("where", ["tensor", "replaced", "one"])
@pytest.mark.parametrize("form", HUGGING_FACE, ids=name_of)
def test_a_model_of_hugging_face_goes_on(pool, tmp_path, form, where):
    """Also one that is not replaced by distributed modules, unless the file has their names."""
    pytest.importorskip("transformers")
    expected = json.loads(form.read_text())
    unpack(form, tmp_path)
    how = expected["how"]
    of_whole = not how.get("partial", True) or "pretrained" in how
    ranks, settings, marked = (2, TENSOR, True) if where == "tensor" else (1, {}, True)
    if where == "one" and how.get("translate_if_full", True):
        marked = False

    results = pool(ranks).run(
        "golden_hugging_face_jobs:resume",
        {**BASE, **settings},
        *(str(tmp_path), expected["kind"], marked),
        tag="pytorch_model.bin" if "pretrained" in how else "golden",
        partial=not of_whole,
        first=0 if where == "tensor" else 1,
    )

    for found in results:
        for key in expected.keys() - {"written_by", "kind", "how"}:
            assert found[key] == expected[key], key


# --- What these tests would see ---


@pytest.mark.parametrize("field", ["master", "exp_avg", "step"])
def test_one_changed_value_is_seen(pool, tmp_path, field):
    form = DATA / "555f3269" / "fp16.json"
    unpack(form, tmp_path)
    folder = tmp_path / "golden_partial"
    part = torch.load(folder / "optimizer_0_0_0.pt")
    entry = part["parameters"]["3.bias"]
    kept = {**entry, **entry["state"], **entry["scalars"]}[field]
    kept.view(-1)[-1:].add_(1e-6 if field != "step" else 1)
    torch.save(part, folder / "optimizer_0_0_0.pt")
    sign(folder)

    found = resumed(pool, json.loads(form.read_text()), tmp_path, "one")

    with pytest.raises(AssertionError, match=r"3\.bias"):
        assert_restored(found[0], json.loads(form.read_text()))


def test_one_changed_byte_is_refused(pool, tmp_path):
    unpack(DATA / "555f3269" / "one.json", tmp_path)
    file = tmp_path / "golden_partial" / "model_0_0.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    errors = pool(1).run("golden_jobs:resume", BASE, str(tmp_path), False, fails=True)

    assert "model_0_0.pt has checksum" in errors[0]

# SPDX-License-Identifier: Apache-2.0
"""Published scripts of SMP v2, unchanged: the numbers of plain PyTorch to the bit, checkpoints from
which the job goes on as if it had not stopped, and whole models that anybody loads.

Each job trains four steps on real text, with validation and a checkpoint after each second one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from package_environments import environment_with

from tests.mpi.smp_v2_cases import CASES, FACTORS, TABLE, Case, chosen, wanted
from tests.mpi.smp_v2_jobs import (
    COPIES,
    EACH,
    EXPERTS,
    IMPORTS,
    OF_MODEL,
    SIZES,
    STEPS,
    TRAINING,
    Numbers,
    Script,
    paths,
    write_data,
)
from tests.warm.interpreter import warm_python

#: Cases that are always run.
ALWAYS = {
    "llama_v2-sharded-np2-degree2-hybrid_shard-resumes-offload",
    "gpt_neox-local-np2-degree2-hybrid_shard-resumes-bf16-delayed-orig_params",
    "mistral-async_local-np2-degree1-hybrid_shard_zero2-resumes",
}
#: Cases that other versions of Transformers run, besides: each model, each kind of checkpoint.
VERSIONS = [
    "transformers==4.44.2",  # of the last image of SMP
    "transformers==4.57.6",
]
OF_VERSIONS = [
    *sorted(ALWAYS),
    "mixtral-local-np2-degree0-hybrid_shard_zero2-resumes-delayed-offload-orig_params",
    "gpt2-async_sharded-np2-degree0-full_shard-resumes-bf16-delayed-offload-orig_params",
    "llama_v3-async_sharded-np4-degree1-full_shard-resumes-bf16-delayed-offload-orig_params",
]
Data = Callable[..., Path]
Python = Callable[[str], str]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Python]:
    """Interpreters that have imported what the scripts do, with our locks' Transformers or another
    version."""
    made: dict[str, str] = {}
    with ExitStack() as stack:

        def of(version: str = "") -> str:
            if version not in made:
                folder = tmp_path_factory.mktemp("v2") / "bin"
                options = {"python": str(environment_with(version))} if version else {}
                warm = warm_python(folder, imports=IMPORTS, **options)
                made[version] = str(stack.enter_context(warm))
            return made[version]

        yield of


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    made: dict[tuple[int, int], Path] = {}

    def of(ranks: int, copies: int = 1) -> Path:
        if (ranks, copies) not in made:
            made[ranks, copies] = write_data(tmp_path_factory.mktemp("data"), ranks, copies)
        return made[ranks, copies]

    return of


def arguments_of(data: Path, out: Path, model: str, **more: Any) -> dict[str, Any]:
    return {
        **SIZES, **TRAINING, **OF_MODEL.get(model, {}), **paths(data), "model_type": model,
        "checkpoint_freq": EACH, "checkpoint_dir": out / "checkpoints", **more,
    }  # fmt: skip


def assert_same_values(ours: Numbers, theirs: Numbers) -> None:
    values, expected = ours.values(), theirs.values()
    assert values.keys() == expected.keys()
    different = [name for name, one in values.items() if not torch.equal(one, expected[name])]
    assert not different


def assert_same(ours: Numbers, theirs: Numbers, since: int = 0) -> None:
    """To the bit; of the second job the numbers of the steps since one."""
    assert (ours.steps, ours.validation) == theirs.after(since)
    assert_same_values(ours, theirs)


@dataclass
class Job:
    """A script, with what it is started with, and its folder."""

    script: Script
    ranks: int
    settings: dict[str, Any]
    arguments: dict[str, Any]
    out: Path

    def run(self, name: str, plain: Path | bool = False, **changed: Any) -> Numbers:
        arguments = {**self.arguments, **changed}
        return self.script.run(self.ranks, self.out / name, self.settings, plain, **arguments)

    @property
    def checkpoints(self) -> list[Path]:
        return sorted((self.out / "checkpoints").iterdir())

    def unbroken(self) -> Numbers:
        numbers = self.run("unbroken")
        assert len(numbers.steps) == STEPS and len(numbers.validation) == STEPS // EACH
        model = self.arguments["model_type"]
        expected = [f"{model}-{step}steps" for step in (EACH, STEPS)]
        assert [one.name for one in self.checkpoints] == expected
        return numbers

    def compare_with_plain(self, numbers: Numbers) -> None:
        """With the same script over plain PyTorch, to the bit."""
        begin: Path | bool = True
        if self.arguments["delayed_param"]:  # values that nobody else draws alike
            begin = self.run("begin", max_steps=0).model / "pytorch_model.bin"
        plain = self.run(
            "plain", begin, delayed_param=0, checkpoint_freq=STEPS + 1, checkpoint_type="sharded"
        )
        assert_same(numbers, plain)

    def load(self, numbers: Numbers, data: Path) -> None:
        """The whole model by Transformers: all names match, and it computes what the job did."""
        bf16 = self.arguments["bf16"]
        found = self.script.loaded(numbers.model, data, self.ranks, bf16)
        assert found["unmatched"] == {}
        # Transformers 4 computes losses in 16 bits, too: they may differ in the last one.
        expected = pytest.approx(numbers.validation[-1][1], rel=2**-8 if bf16 else 1e-6)
        assert found["loss"] == expected

    def resume(self, unbroken: Numbers) -> None:
        """From the first checkpoint: what the job without a break did, to the bit."""
        resumed = self.run("resumed", resume_from_checkpoint=self.checkpoints[0])
        if self.script.folder == "case_11":  # it skips as much of validation as it has trained on
            assert resumed.validation == [[STEPS - 1, -1.0]]  # the script's word for nothing
            resumed.validation = unbroken.after(EACH)[1]
        assert_same(resumed, unbroken, since=EACH)


def check_case(python: str, data: Path, out: Path, case: Case) -> None:
    settings = {"hybrid_shard_degree": case.degree, "sm_activation_offloading": bool(case.offload)}
    arguments = arguments_of(
        data, out, case.model, **EXPERTS, bf16=case.bf16, delayed_param=case.delayed,
        use_orig_params=case.orig_params, sharding_strategy=case.strategy,
        checkpoint_type=case.checkpoint,
    )  # fmt: skip
    if case.checkpoint == "async_local":  # of which the script does not load its scheduler
        arguments |= {"lr_decay_style": "constant", "warmup": 0}
    job = Job(Script("examples", python), case.ranks, settings, arguments, out)
    numbers = job.unbroken()
    job.compare_with_plain(numbers)
    job.load(numbers, data)
    if case.resumes:
        job.resume(numbers)


def marked(case: Case) -> Any:
    return pytest.param(case, id=str(case), marks=[] if str(case) in ALWAYS else pytest.mark.long)


@pytest.mark.parametrize("case", [marked(case) for case in CASES])
def test_examples_train_as_plain_torch_and_resume(
    python: Python, data: Data, tmp_path: Path, case: Case
) -> None:
    check_case(python(""), data(case.ranks), tmp_path, case)


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", OF_VERSIONS)
def test_examples_with_other_versions_of_transformers(
    python: Python, data: Data, tmp_path: Path, version: str, name: str
) -> None:
    case = next(one for one in CASES if str(one) == name)

    check_case(python(version), data(case.ranks), tmp_path, case)


@pytest.mark.long
@pytest.mark.parametrize(
    ("folder", "model", "degree", "offload", "delayed"),
    [
        ("case_17", "llama_v2", 2, 1, 0),
        ("case_17", "mixtral", 1, 0, 1),
        ("case_17", "gpt_neox", None, 1, 1),
        ("case_11", "llama_v2", 2, 1, 1),
        ("case_11", "gpt2", None, 0, 0),
        ("case_11", "gpt_neox", 1, 0, 0),
    ],
)
def test_older_scripts_train_as_plain_torch_and_resume(
    python: Python, data: Data, tmp_path: Path, folder: str, model: str, degree: int | None,
    offload: int, delayed: int,
) -> None:  # fmt: skip
    older, first = folder == "case_11", None
    for checkpoint in ("local", "use_pg_with_util", "sharded"):
        out = tmp_path / checkpoint
        arguments = arguments_of(
            data(2), out, model, bf16=0, delayed_param=delayed, offload_activations=offload,
            use_orig_params=offload, checkpoint_type=checkpoint,
            **({} if degree is None else {"shard_degree": degree}),
            # Script 11 takes a class for Llama that Transformers has not had since 4.48.
            **({"use_smp_flash_attn": 0} if older else EXPERTS),
        )  # fmt: skip
        job = Job(Script(folder, python("")), 2, {}, arguments, out)
        numbers = job.unbroken()
        if first is None:
            first = numbers
            job.compare_with_plain(numbers)
            job.load(numbers, data(2))
        assert_same(numbers, first)
        # Both ask a checkpoint of use_pg_with_util for a value that they do not save in it, and
        # script 11 passes arguments to FSDP in the order of PyTorch 2.0 where it is sharded.
        if checkpoint == "local" or (checkpoint == "sharded" and not older):
            job.resume(numbers)


@pytest.mark.long
def test_all_degrees_and_numbers_of_ranks_learn_the_same_from_equal_data(
    python: Python, data: Data, tmp_path: Path
) -> None:
    script, jobs = Script("examples", python("")), []
    for ranks, degree, strategy in (
        (2, 0, "full_shard"), (2, 0, "hybrid_shard"), (2, 1, "full_shard"), (2, 2, "full_shard"),
        (4, 0, "shard_grad_op"), (4, 1, "hybrid_shard"), (4, 2, "hybrid_shard"),
        (4, 4, "_hybrid_shard_zero2"),
    ):  # fmt: skip
        out = tmp_path / f"{ranks}-{degree}-{strategy}"
        # No clipping: norms are sums over shards, which differ in their last bits.
        arguments = arguments_of(
            data(ranks, ranks), out, "llama_v2", **EXPERTS, bf16=0, delayed_param=0, grad_clip=1e9,
            sharding_strategy=strategy,
        )  # fmt: skip
        jobs.append(script.run(ranks, out, {"hybrid_shard_degree": degree}, **arguments))

    first, *others = jobs
    for other in others:
        assert [one[:3] for one in other.steps] == [one[:3] for one in first.steps]
        norms, expected = ([one[3] for one in job.steps] for job in (other, first))
        assert norms == pytest.approx(expected, rel=1e-6)
        assert other.validation == first.validation
        assert_same_values(other, first)


@pytest.mark.long
@pytest.mark.parametrize("checkpoint", ["sharded", "async_local"])
def test_over_smddp_numbers_are_those_over_gloo(
    python: Python, data: Data, tmp_path: Path, checkpoint: str
) -> None:
    script, settings = Script("examples", python("")), {"hybrid_shard_degree": 2}

    ours, theirs = (
        script.run(
            2, tmp_path / backend, settings,
            **arguments_of(
                data(2), tmp_path / backend, "mistral", **EXPERTS, bf16=0, delayed_param=0,
                checkpoint_type=checkpoint, distributed_backend=backend,
            ),
        )
        for backend in ("smddp", "nccl")
    )  # fmt: skip

    assert_same(ours, theirs)


@pytest.mark.long
@pytest.mark.parametrize(("degree", "delayed"), [(0, 1), (2, 0), (2, 1)])
@pytest.mark.parametrize("model", ["llama_v3", "gpt2"])
def test_fine_tuning_goes_on_from_a_whole_model(
    python: Python, data: Data, tmp_path: Path, model: str, degree: int, delayed: int
) -> None:
    script, settings = Script("examples", python("")), {"hybrid_shard_degree": degree}
    arguments = arguments_of(data(2), tmp_path, model, **EXPERTS, bf16=0, delayed_param=0)
    base = script.run(2, tmp_path / "base", settings, **arguments).model

    tuned = script.run(
        2, tmp_path / "tuned", settings,
        **{**arguments, "delayed_param": delayed, "hf_pretrained_model_name_or_dir": base},
    )  # fmt: skip

    assert_same(
        tuned,
        script.run(
            2, tmp_path / "plain", settings, base / "pytorch_model.bin",
            **{**arguments, "checkpoint_freq": STEPS + 1},
        ),
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("model", FACTORS["model"])
def test_delayed_models_begin_with_values_spread_as_others_are(
    python: Python, data: Data, tmp_path: Path, model: str
) -> None:
    script = Script("examples", python(""))

    delayed, eager = (
        script.run(
            2, tmp_path / str(one), {},
            **arguments_of(data(2), tmp_path, model, **EXPERTS, bf16=0, delayed_param=one)
            | {"max_steps": 0},
        ).values()
        for one in (1, 0)
    )  # fmt: skip

    for measure, bounds in ((torch.std, {"rel": 0.3}), (torch.mean, {"abs": 0.02})):
        found, expected = (
            {name: measure(one.float()).item() for name, one in values.items()}
            for values in (delayed, eager)
        )
        assert found == pytest.approx(expected, **bounds)


#: Cases with split layers: model, checkpoint, ranks, hybrid_shard_degree, bf16, delayed. On two
#: ranks none shards, and the script itself fails at saving "sharded" over a group of one rank.
SPLIT = [
    ("llama_v2", "async_sharded", 2, 1, 0, 0),
    ("llama_v2", "sharded", 4, 2, 1, 1),
    ("llama_v3", "sharded", 4, 2, 0, 1),
    ("llama_v3", "async_local", 2, 0, 0, 0),
    ("mistral", "async_sharded", 2, 0, 0, 1),
    ("mistral", "async_local", 4, 2, 1, 0),
    ("gpt_neox", "async_sharded", 4, 1, 0, 1),
    ("gpt_neox", "async_local", 2, 1, 1, 1),
    ("gpt_neox", "async_sharded", 2, 1, 0, 0),
]
TENSOR = 2  # ranks over which layers are split


def split_job(
    python: str, data: Path, out: Path, model: str, ranks: int, degree: int, **more: Any
) -> Job:
    settings = {"tensor_parallel_degree": TENSOR, "hybrid_shard_degree": degree}
    arguments = arguments_of(data, out, model, **EXPERTS, use_smp_implementation=1, fp8=0, **more)
    if more["checkpoint_type"] == "async_local":  # of which the script does not load its scheduler
        arguments |= {"lr_decay_style": "constant", "warmup": 0}
    return Job(Script("examples", python), ranks, settings, arguments, out)


def compare_with_whole(job: Job, numbers: Numbers, data: Path) -> None:
    """With plain PyTorch that splits nothing, where each rank of a group has the group's data."""
    begin: Path | bool = True
    if job.arguments["delayed_param"]:  # values that nobody else draws alike
        begin = job.run("begin", max_steps=0).model / "pytorch_model.bin"
    whole = Job(job.script, job.ranks, {}, job.arguments, job.out).run(
        "whole", begin, **paths(data), use_smp_implementation=0, use_orig_params=1,
        delayed_param=0, checkpoint_freq=STEPS + 1, checkpoint_type="sharded",
    )  # fmt: skip
    bf16 = job.arguments["bf16"]
    ours, theirs = (torch.tensor(one.steps, dtype=torch.float64) for one in (numbers, whole))
    validation = (torch.tensor(one.validation).double() for one in (numbers, whole))
    for tensors in ((ours[:, :3], theirs[:, :3]), validation):
        torch.testing.assert_close(*tensors, rtol=2**-8 if bf16 else 1e-6, atol=0)
    # Adam makes of a gradient near nothing a step as long as of any other: where its first step is
    # a long one, sums in another order show.
    torch.testing.assert_close(ours[:, 3], theirs[:, 3], rtol=2**-6 if bf16 else 1e-4, atol=0)
    if not bf16 and job.arguments.get("lr_decay_style") != "constant":
        values = numbers.values()
        for name, value in whole.values().items():
            # Biases of keys have gradients of nothing but rounding.
            torch.testing.assert_close(values[name], value, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "checkpoint", "ranks", "degree", "bf16", "delayed"),
    [
        pytest.param(*one, marks=pytest.mark.long if at else pytest.mark.thorough)
        for at, one in enumerate(SPLIT)
    ],
)
def test_split_layers_train_as_whole_ones_and_resume(
    python: Python, data: Data, tmp_path: Path, model: str, checkpoint: str, ranks: int,
    degree: int, bf16: int, delayed: int,
) -> None:  # fmt: skip
    groups = data(ranks // TENSOR)
    job = split_job(
        python(""), groups, tmp_path, model, ranks, degree, bf16=bf16, delayed_param=delayed,
        checkpoint_type=checkpoint,
    )  # fmt: skip

    numbers = job.unbroken()

    compare_with_whole(job, numbers, data(ranks, TENSOR))
    job.ranks = ranks // TENSOR  # that have batches of their own
    job.load(numbers, groups)
    job.ranks = ranks
    job.resume(numbers)


@pytest.mark.long
@pytest.mark.parametrize("delayed", [0, 1])
@pytest.mark.parametrize("model", ["llama_v2", "gpt_neox"])
def test_split_layers_begin_with_a_whole_model_and_give_it_back(
    python: Python, data: Data, tmp_path: Path, model: str, delayed: int
) -> None:
    job = split_job(
        python(""), data(1), tmp_path, model, 2, 1, bf16=0, delayed_param=0,
        checkpoint_type="async_sharded",
    )  # fmt: skip
    base = job.run("base", max_steps=0)

    again = job.run(
        "again", max_steps=0, delayed_param=delayed, hf_pretrained_model_name_or_dir=base.model
    )

    assert_same_values(again, base)


@pytest.mark.long
@pytest.mark.parametrize("model", FACTORS["model"])
def test_the_own_implementation_without_degrees_is_plain_torch(
    python: Python, data: Data, tmp_path: Path, model: str
) -> None:
    arguments = arguments_of(
        data(2), tmp_path, model, **EXPERTS, bf16=0, delayed_param=0, fp8=0, use_orig_params=1,
        use_smp_implementation=1, checkpoint_type="sharded",
    )  # fmt: skip
    job = Job(Script("examples", python("")), 2, {"hybrid_shard_degree": 2}, arguments, tmp_path)

    numbers = job.unbroken()

    plain = job.run("plain", True, use_smp_implementation=0, checkpoint_freq=STEPS + 1)
    assert_same(numbers, plain)


def test_copies_are_what_was_published() -> None:
    files = {
        str(path.relative_to(COPIES)): path
        for path in COPIES.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    sums = [line.split() for line in files.pop("SHA256SUMS").read_text().splitlines()]
    del files["README.md"]

    found = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    assert found == {name: total for total, name in sums}


def test_cases_have_all_pairs() -> None:
    rows = [dict(zip(FACTORS, row, strict=True)) for row in TABLE]

    missing = [one for one in wanted() if not any(set(one) <= row.items() for row in rows)]

    assert missing == []
    assert list(TABLE) == chosen(), "python -m tests.mpi.smp_v2_cases prints the table"
    assert {str(case) for case in CASES} >= ALWAYS | set(OF_VERSIONS)

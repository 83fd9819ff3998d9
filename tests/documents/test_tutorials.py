# SPDX-License-Identifier: Apache-2.0
"""The commands of each tutorial run as its page has them, and print what the page shows.

Those that need containers are in tests/image/test_tutorials.py.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.documents.tutorials import (
    ROOT,
    TUTORIALS,
    build_folder,
    by_interpreter,
    environment,
    missing_lines,
    pattern_of,
    run_tutorial,
    workplace,
)

IN_CONTAINERS = {"extend_image", "two_containers"}
NAMES = sorted(path.parent.name for path in TUTORIALS.glob("*/run.sh"))


@pytest.fixture
def built() -> None:
    """Skips where neither the launcher nor the package is there yet."""
    launcher = shutil.which("train", path=environment()["PATH"])
    if launcher is None or importlib.util.find_spec("smdistributed") is None:
        pytest.skip("train or smdistributed is not built; ci/build does that")


def page_of(name: str) -> str:
    return (TUTORIALS / f"{name}.md").read_text()


def run(name: str, folder: Path, python: Path | None = None) -> str:
    output = run_tutorial(name, folder, **(by_interpreter(python) if python else {}))
    assert missing_lines(page_of(name), output) == [], output
    return output


def numbers(pattern: str, text: str) -> list[float]:
    return [float(number) for number in re.findall(pattern, text)]


# --- The pages ---


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_every_command_of_its_script(name: str) -> None:
    """All that run.sh does between its marks is on the page, by literalinclude."""
    script = (TUTORIALS / name / "run.sh").read_text()
    sections = re.findall(r"^# \[(\w+)\]$", script, re.MULTILINE)
    page = page_of(name)

    assert sections
    for section in sections:
        assert f"# [end {section}]" in script
        shown = rf"literalinclude\}} {name}/run\.sh\n[^`]*:start-after: \"# \[{section}\]\""
        assert re.search(shown, page), f"{name}.md does not show [{section}]"


@pytest.mark.parametrize("name", NAMES)
def test_marks_that_the_page_names_are_in_the_files(name: str) -> None:
    includes = re.findall(r"\{literalinclude\} (\S+)\n(.*?)```", page_of(name), re.DOTALL)

    assert includes
    for file, options in includes:
        text = (TUTORIALS / file).read_text()
        for mark in re.findall(r':(?:start-after|end-before): "(.*)"', options):
            assert mark in text.splitlines(), f"{file} has no line {mark}"


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_what_one_sees(name: str) -> None:
    assert "```{code-block} text\n:caption: Output\n" in page_of(name)


def test_lines_of_a_page_match_what_differs_in_numbers_only() -> None:
    assert re.search(pattern_of("epoch  1: loss 0.5, … 98 %"), "epoch 12: loss 0.25, right 7 %")
    assert not re.search(pattern_of("epoch 1: loss 0.5"), "epoch 1: loss nan")


def test_what_extends_the_image_is_pinned_as_it_is_locked() -> None:
    lock = (ROOT / "docker/locks/examples.lock").read_text()
    locked = re.findall(r"^(scikit-learn==\S+)", lock, re.MULTILINE)
    files = ("extend_image.md", "extend_image/run.sh", "extend_image/Dockerfile")

    assert len(locked) == 1
    for file in files:
        named = re.findall(
            r"(?:pip install|pip download|--find-links).*?(scikit-learn\S*?)[`\s]",
            (TUTORIALS / file).read_text(),
        )
        assert named == locked, file


# --- Their commands ---


@pytest.mark.usefixtures("built")
def test_first_job(tmp_path: Path) -> None:
    output = run("first_job", tmp_path)

    accuracies = numbers(r"epoch 10: .* accuracy ([\d.]+)%", output)
    assert len(accuracies) == 3, "alone, by mpirun, by train"
    assert min(accuracies) > 93
    assert max(accuracies) - min(accuracies) < 2, "they learn from the same batches"


@pytest.mark.usefixtures("built")
def test_from_smp_v1(tmp_path: Path, warm_interpreter: Path) -> None:
    output = run("from_smp_v1", tmp_path, warm_interpreter)

    assert numbers(r"epoch 3: .* accuracy ([\d.]+)%", output)[0] > 85


@pytest.mark.usefixtures("built")
def test_the_script_of_v1_runs_unchanged_where_cuda_is(
    tmp_path: Path, warm_interpreter: Path
) -> None:
    """Here on the CPU, whose devices a shim shows to the script as CUDA's."""
    digits = tmp_path / "digits"
    digits.mkdir()
    sklearn = importlib.util.find_spec("sklearn")
    assert sklearn is not None
    assert sklearn.origin is not None
    shutil.copy(Path(sklearn.origin).parent / "datasets/data/digits.csv.gz", digits)
    shim = ROOT / "tests/mpi/published/run_as_cuda.py"
    script = TUTORIALS / "from_smp_v1/v1.py"

    accuracies: list[float] = []
    for resume in ("0", "1"):
        done = subprocess.run(
            [
                *("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"),
                *(warm_interpreter, shim, script, "--epochs", "2", "--resume", resume),
            ],
            env=environment(
                SM_CHANNEL_TRAIN=str(digits),
                SM_MODEL_DIR=str(tmp_path),
                SM_HP_MP_PARAMETERS='{"partitions": 2, "microbatches": 4}',
                OMP_NUM_THREADS="1",
            ),
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

        assert done.returncode == 0, done.stdout + done.stderr
        accuracies.append(numbers(r"epoch 1: .* accuracy ([\d.]+)%", done.stdout)[0])
    assert accuracies[1] > max(accuracies[0], 85), "goes on from the parts that were saved"
    assert (tmp_path / "checkpoint.pt_1").exists()


@pytest.mark.thorough
@pytest.mark.usefixtures("built")
def test_from_smp_v2(tmp_path: Path) -> None:
    output = run("from_smp_v2", tmp_path)

    losses = numbers(r"(?m)^step \d+: loss ([\d.]+)", output)
    job, resumed, of_v1, begun = losses[:6], losses[6:8], losses[8:12], losses[12:]
    assert job[-1] < job[0] - 0.5
    assert max(resumed) < job[2], "goes on from the checkpoint"
    assert len(begun) == 1, "ten steps are left after those of v1"
    assert begun[0] < of_v1[1], "goes on from the checkpoint of v1"


@pytest.mark.thorough
@pytest.mark.usefixtures("built")
def test_sharded_training(tmp_path: Path, warm_interpreter: Path) -> None:
    output = run("sharded_training", tmp_path, warm_interpreter)

    whole, sharded, in_groups = numbers(r"model state of a rank: ([\d.]+) MB", output)
    assert sharded < 0.3 * whole
    assert sharded < in_groups < 0.6 * whole
    losses = numbers(r"mean loss ([\d.]+)", output)
    assert losses[3:6] == pytest.approx(losses[:3], rel=0.02), "shards change no result"
    assert losses[6] < losses[5], "goes on from the checkpoint"
    assert numbers(r"test accuracy in plain PyTorch: ([\d.]+)%", output)[0] > 88


@pytest.mark.thorough
@pytest.mark.usefixtures("built")
def test_tensor_parallel(tmp_path: Path, warm_interpreter: Path) -> None:
    output = run("tensor_parallel", tmp_path, warm_interpreter)

    data, tensor, both = (
        numbers(r"mean loss ([\d.]+)", part) for part in output.split("a rank holds")[:3]
    )
    assert tensor == pytest.approx(data, rel=0.01)
    assert both == pytest.approx(data, rel=0.01)
    held = numbers(r"a rank holds (\d+) parameters", output)
    assert held[1] < 0.6 * held[0]
    assert held[2] < 0.6 * held[1]
    plain = numbers(r"mean loss in plain Transformers: ([\d.]+)", output)
    assert plain[0] < both[0], "it is what the job trained"


@pytest.mark.thorough
@pytest.mark.usefixtures("built")
def test_smddp(tmp_path: Path, warm_interpreter: Path) -> None:
    output = run("smddp", tmp_path, warm_interpreter)

    assert min(numbers(r"over smddp, 4 ranks: accuracy ([\d.]+)%", output)) > 88
    assert output.count("over smddp, 4 ranks") == 3


@pytest.mark.thorough
@pytest.mark.usefixtures("built")
def test_trainer(tmp_path: Path, warm_interpreter: Path) -> None:
    output = run("trainer", tmp_path, warm_interpreter)

    alone, pipeline, resumed = numbers(r"step 16: evaluation loss ([\d.]+)", output)
    assert pipeline == pytest.approx(alone, abs=2e-3)
    assert resumed == pytest.approx(alone, abs=2e-3)
    logged = numbers(r"{'loss': '([\d.]+)'", output)
    assert logged[2:4] == pytest.approx(logged[:2], abs=2e-3)
    assert len(logged) == 5, "one epoch was left to the resumed run"
    assert alone < logged[0] - 0.5


@pytest.mark.long
@pytest.mark.usefixtures("built")
def test_frameworks(tmp_path: Path) -> None:
    output = run("frameworks", tmp_path)

    accuracies = numbers(r"over smddp, 2 ranks: accuracy ([\d.]+)%", output)
    assert len(accuracies) == 3
    assert min(accuracies) > 85


@pytest.mark.thorough
@pytest.mark.usefixtures("built")
def test_cpp(tmp_path: Path) -> None:
    if not (build_folder() / "lib/libsmp_runtime.so").exists():
        pytest.skip(f"{build_folder()} has no C++ library; ci/build makes one")
    output = run("cpp", tmp_path)

    losses = numbers(r"test loss ([\d.]+)", output)
    alone, split, resumed = losses[:10], losses[10:15], losses[15:]
    assert [*split, *resumed] == pytest.approx(alone, abs=2e-3)
    assert alone[-1] < 0.1 * alone[0]


def test_each_tutorial_is_run_by_a_test() -> None:
    here = Path(__file__).read_text()
    with_image = (ROOT / "tests/image/test_tutorials.py").read_text()

    for name in NAMES:
        text = with_image if name in IN_CONTAINERS else here
        assert re.search(rf"^def test_{name}\(", text, re.MULTILINE), name


def test_a_copy_holds_no_link_into_the_tutorials(tmp_path: Path) -> None:
    """Commands write nothing into the repository."""
    copy = workplace(tmp_path) / "docs" / "tutorials"

    assert not any(path.is_symlink() for path in [copy, *copy.rglob("*")])


@pytest.mark.thorough
@pytest.mark.usefixtures("built")
def test_choose_degrees(tmp_path: Path) -> None:
    output = run("choose_degrees", tmp_path)

    assert (tmp_path / "build" / "degrees" / "candidates.svg").read_text().startswith("<svg")
    assert "nothing fits" in output

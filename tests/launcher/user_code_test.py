# SPDX-License-Identifier: Apache-2.0
"""Sources of the user's code on this host: archives, folders, channels, and the plan."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import tarfile

import pytest
from http_answers import serving
from jobs import train_binary
from object_store import HELLO, KEYS, job_tree, tar_gz


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_local_archive_is_unpacked(folder, run, scheme):
    archive = folder / "sourcedir.tar.gz"
    archive.write_bytes(tar_gz({"train.py": HELLO}))

    result = run(job_tree(folder, f"{scheme}{archive}"))

    assert result.code == 0, result.err
    assert "hello from" in result.out


def test_network_isolation_brings_the_code_as_a_channel(folder, run):
    tree = job_tree(folder, "/opt/ml/input/data/code/sourcedir.tar.gz")
    channel = tree.base / "input" / "data" / "code"
    channel.mkdir(parents=True)
    (channel / "sourcedir.tar.gz").write_bytes(tar_gz({"train.py": HELLO}))

    result = run(tree)

    assert result.code == 0, result.err
    assert "hello from" in result.out


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_local_folder_is_copied_with_links_followed(folder, run, scheme):
    source = folder / "source"
    (source / "pkg").mkdir(parents=True)
    (source / "real.py").write_text(HELLO)
    (source / "train.py").symlink_to("real.py")
    (source / "dangling").symlink_to("nowhere")

    result = run(job_tree(folder, f"{scheme}{source}"))

    assert result.code == 0, result.err
    code = result.tree.base / "code"
    assert not (code / "train.py").is_symlink()
    assert sorted(os.listdir(code)) == ["pkg", "real.py", "train.py"]
    assert "dangling: left out: a link that leads nowhere" in result.err


def test_a_single_local_file_is_copied(folder, run):
    (folder / "train.py").write_text(HELLO)

    result = run(job_tree(folder, str(folder / "train.py")))

    assert result.code == 0, result.err


def test_a_location_that_is_not_there_is_named(folder, run):
    result = run(job_tree(folder, "/no/such/place"))

    assert result.code == 1
    assert result.tree.failure.startswith(
        'sagemaker_submit_directory "/no/such/place": /no/such/place is not there'
    )


@pytest.mark.parametrize(
    "location", ["https://host/x.tar.gz", "git://host/x", "relative/path", "s3://bucket/", "s3://"]
)
def test_locations_that_cannot_be_fetched_are_refused(folder, run, location):
    result = run(job_tree(folder, location))

    assert result.code == 1
    assert result.tree.failure.startswith(f'sagemaker_submit_directory "{location}": ')


def test_code_that_is_there_stays_and_a_missing_script_is_explained(folder, run):
    """sagemaker-training-toolkit#222, #85."""
    archive = folder / "a.tar.gz"
    archive.write_bytes(tar_gz({"train.py": HELLO}))
    tree = job_tree(folder, str(archive))
    (tree.base / "code" / "README").write_text("baked in")

    result = run(tree)

    assert result.code == 1
    assert os.listdir(tree.base / "code") == ["README"]
    assert "SM_LAUNCH_CODE=replace" in tree.failure
    assert str(archive) in tree.failure


def test_replace_fetches_over_what_is_there(folder, run):
    archive = folder / "a.tar.gz"
    archive.write_bytes(tar_gz({"train.py": HELLO}))
    tree = job_tree(folder, str(archive))
    (tree.base / "code" / "train.py").write_text("raise SystemExit('the old one')")
    (tree.base / "code" / "baked.py").write_text("")

    kept = run(tree)
    (tree.base / "output" / "failure").unlink()
    replaced = run(tree, SM_LAUNCH_CODE="replace")

    assert "the old one" in kept.err
    assert replaced.code == 0, replaced.err
    assert sorted(os.listdir(tree.base / "code")) == ["baked.py", "train.py"]


def test_an_archive_that_is_too_large_leaves_nothing_that_would_run(folder, run):
    archive = folder / "a.tar.gz"
    archive.write_bytes(tar_gz({"train.py": HELLO, "zeros": "0" * 1_000_000}))
    tree = job_tree(folder, str(archive))

    refused = run(tree, SM_LAUNCH_CODE_MAX_BYTES="500000")
    again = run(tree, SM_LAUNCH_CODE_MAX_FILES="1")

    assert (refused.code, again.code) == (1, 1)
    assert "SM_LAUNCH_CODE_MAX_BYTES" in refused.err
    assert "has more than 1 members; make it smaller, or raise SM_LAUNCH_CODE_MAX" in tree.failure
    assert os.listdir(tree.base / "code") == []
    (tree.base / "output" / "failure").unlink()
    assert run(tree, SM_LAUNCH_CODE_MAX_BYTES="1500000").code == 0


def test_a_cut_archive_leaves_nothing_that_would_run(folder, run):
    archive = folder / "a.tar.gz"
    noise = base64.b64encode(os.urandom(300_000)).decode()
    archive.write_bytes(tar_gz({"train.py": HELLO, "noise": noise})[:100_000])
    tree = job_tree(folder, str(archive))

    result = run(tree)

    assert result.code == 1
    assert "not a whole archive" in tree.failure
    assert os.listdir(tree.base / "code") == []


def test_a_hostile_archive_stays_in_its_folder_and_fails_nothing(folder, run):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:

        def add(
            name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
        ) -> None:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, link, mode
            content = HELLO.encode() if kind == tarfile.REGTYPE else b""
            member.size = len(content)
            member.uid = member.gid = 4242
            archive.addfile(member, io.BytesIO(content))

        add("train.py")
        add("/absolute.py")
        add("../../escaped.py")
        add("..\\..\\backslash.py")
        add("C:\\drive.py")
        add("./..")
        add("suid", mode=0o6755)
        add("device", tarfile.CHRTYPE)
        add("fifo", tarfile.FIFOTYPE)
        add("abs_link", tarfile.SYMTYPE, "/etc/passwd")
        add("up_link", tarfile.SYMTYPE, "../outside")
        add("good_link", tarfile.SYMTYPE, "train.py")
        add("hard_out", tarfile.LNKTYPE, "../../secret")
        add("hard_in", tarfile.LNKTYPE, "train.py")
        # A way out in two steps: each alone looks harmless.
        add("l/m/n", tarfile.SYMTYPE, "../..")
        add("way_out", tarfile.SYMTYPE, "l/m/n/..")
        add("way_out/planted.py")
    source = folder / "hostile.tar.gz"
    source.write_bytes(buffer.getvalue())
    (folder / "secret").write_text("secret")
    before = sorted(os.listdir(folder))

    result = run(job_tree(folder, str(source)))

    assert result.code == 0, result.err
    code = result.tree.base / "code"
    files = sorted(
        str(path.relative_to(code))
        for path in code.rglob("*")
        if not path.is_dir() or path.is_symlink()
    )
    assert files == [
        "absolute.py",
        "backslash.py",
        "drive.py",
        "escaped.py",
        "good_link",
        "hard_in",
        "l/m/n",
        "suid",
        "train.py",
        "way_out/planted.py",
    ]
    assert (code / "suid").stat().st_mode & 0o7777 == 0o755
    assert (code / "train.py").stat().st_uid == os.getuid()
    assert (code / "hard_in").stat().st_ino == (code / "train.py").stat().st_ino
    assert not (code / "way_out").is_symlink()
    assert sorted(os.listdir(folder)) == sorted([*before, "opt_ml"])
    for name in ("device", "fifo", "abs_link", "up_link", "hard_out"):
        assert f"{name}: left out" in result.err
    assert '"../../escaped.py": unpacked as escaped.py' in result.err


def test_the_plan_shows_the_source_and_fetches_nothing(folder, run):
    with serving(lambda _: (500, b"")) as (url, seen):
        tree = job_tree(folder, "s3://b/k.tar.gz")
        text = run(tree, "--plan", S3_ENDPOINT_URL=url, **KEYS)
        data = json.loads(run(tree, "--plan", "--json", S3_ENDPOINT_URL=url, **KEYS).out)

    assert text.code == 0, text.err
    assert "Code:       fetched from s3://b/k.tar.gz; a plan fetches nothing\n" in text.out
    assert data["code"] == {
        "fetched": True,
        "location": "s3://b/k.tar.gz",
        "over_existing": False,
    }
    assert seen == []
    assert os.listdir(tree.base / "code") == []


def test_a_job_that_fetches_nothing_maps_neither_library(folder, run):
    tree = job_tree(folder, None)
    (tree.base / "code" / "train.py").write_text(
        "import os; print(open(f'/proc/{os.getppid()}/maps').read())"
    )

    maps = run(tree).out
    linked = subprocess.run(["ldd", train_binary()], capture_output=True, text=True, check=True)

    assert "/bin/train" in maps
    for library in ("libcurl", "libarchive", "libsmp_transfer"):
        assert library not in maps
        assert library not in linked.stdout

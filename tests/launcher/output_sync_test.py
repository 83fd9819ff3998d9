# SPDX-License-Identifier: Apache-2.0
"""Files of output/intermediate on their way to S3 while the job runs."""

from __future__ import annotations

import http.server
import signal
import threading
from collections.abc import Iterator

import pytest
from http_answers import serving
from object_store import BUCKET, KEYS, ObjectStore, job_tree, running_store

ROOT = "/p/a/job-7/output/intermediate"


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    yield from running_store()


def syncing_tree(folder, script: str, target: str):
    tree = job_tree(folder, None, sagemaker_s3_output=target)
    (tree.base / "code" / "train.py").write_text(
        "import os\nout = os.environ['SM_OUTPUT_INTERMEDIATE_DIR']\n" + script
    )
    return tree


def test_files_arrive_under_the_jobs_prefix(folder, run, store):
    script = """
os.makedirs(f"{out}/sub/deep")
open(f"{out}/plain.txt", "w").write("plain")
open(f"{out}/sub/deep/n.bin", "wb").write(bytes(300_000))
open(f"{out}/part", "w").write("whole"); os.rename(f"{out}/part", f"{out}/renamed")
open(f"{out}/twice", "w").write("1"); open(f"{out}/twice", "w").write("two")
left_open = open(f"{out}/open.log", "w"); left_open.write("last words"); left_open.flush()
os._exit(0)
"""
    tree = syncing_tree(folder, script, f"s3://{BUCKET}//p/a/")

    result = run(tree, TRAINING_JOB_NAME="job-7", **store.settings)

    assert result.code == 0, result.err
    found = store.objects()
    prefix = ROOT.lstrip("/")
    found.pop(f"{prefix}/part", None)  # uploaded before it was renamed, or not
    assert found == {
        f"{prefix}/plain.txt": b"plain",
        f"{prefix}/sub/deep/n.bin": bytes(300_000),
        f"{prefix}/renamed": b"whole",
        f"{prefix}/twice": b"two",
        f"{prefix}/open.log": b"last words",
    }
    assert "Intermediate output: " in result.err
    assert " files uploaded, 0 failed" in result.err
    assert not (tree.base / "output" / ".tmp.sagemaker_s3_sync").exists()
    assert not list((tree.base / "output" / "intermediate").glob(".*"))


def test_s3_checks_the_signature_of_an_upload(folder, run, store):
    content = (
        "open(f'{out}/large', 'wb').write(bytes(2_000_000)); open(f'{out}/a b+', 'w').write('b')"
    )
    tree = syncing_tree(folder, content, f"s3://{BUCKET}/signed")

    with store.checking_signatures() as keys:
        result = run(tree, TRAINING_JOB_NAME="job-8", **(store.settings | keys))

    assert "2 files uploaded, 0 failed" in result.err, result.err
    found = store.objects()
    prefix = "signed/job-8/output/intermediate"
    assert (len(found[f"{prefix}/large"]), found[f"{prefix}/a b+"]) == (2_000_000, b"b")


def test_uploads_happen_while_the_job_runs_and_are_retried(folder, start):
    statuses = [503, 500, 200]
    arrived = threading.Event()

    def answer(_: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes]:
        status = statuses.pop(0)
        if status == 200:
            arrived.set()
        return status, b""

    script = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
open(f"{out}/a", "w").write("a")
signal.sigwait([signal.SIGUSR1])
"""
    with serving(answer) as (url, seen):
        tree = syncing_tree(folder, script, "s3://b/p/a")
        job = start(tree, TRAINING_JOB_NAME="job-7", S3_ENDPOINT_URL=url, **KEYS)
        assert arrived.wait(60)
        assert job.process.poll() is None
        job.process.send_signal(signal.SIGUSR1)
        result = job.finish()

    assert result.code == 0, result.err
    assert [path for _, path, _ in seen] == [f"/b{ROOT}/a"] * 3
    assert seen[0][2]["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"


def test_errors_of_uploads_never_fail_the_job(folder, run):
    with serving(lambda _: (403, b"<Error><Code>AccessDenied</Code></Error>")) as (url, _):
        tree = syncing_tree(folder, 'open(f"{out}/a", "w").write("a")', "s3://b/p")
        result = run(tree, S3_ENDPOINT_URL=url, **KEYS)

    assert result.code == 0
    assert tree.succeeded
    assert (
        "intermediate output a is not uploaded: upload to s3://b/p/output/intermediate/a: "
        "bucket b, key p/output/intermediate/a: HTTP status 403 AccessDenied" in result.err
    )


def test_a_failing_job_uploads_too(folder, run, store):
    tree = syncing_tree(
        folder, 'open(f"{out}/a", "w").write("a")\nraise SystemExit(3)', f"s3://{BUCKET}/failing"
    )

    result = run(tree, **store.settings)

    assert result.code == 1
    assert store.objects()["failing/output/intermediate/a"] == b"a"


def test_a_folder_that_is_there_is_left_to_the_platform(folder, run):
    with serving(lambda _: (500, b"")) as (url, seen):
        tree = syncing_tree(folder, 'open(f"{out}/a", "w").write("a")', "s3://b/p")
        (tree.base / "output" / "intermediate").mkdir(parents=True)
        result = run(tree, S3_ENDPOINT_URL=url, **KEYS)

    assert result.code == 0, result.err
    assert seen == []


def test_a_file_target_makes_the_folder_only(folder, run):
    result = run(syncing_tree(folder, 'open(f"{out}/a", "w").write("a")', "file:///somewhere"))

    assert result.code == 0, result.err
    assert result.tree.read("output/intermediate/a") == "a"


def test_another_scheme_ends_the_job_before_training(folder, run):
    result = run(syncing_tree(folder, 'print("ran")', "ftp://host/x"))

    assert result.code == 1
    assert result.tree.failure.startswith('hyperparameter sagemaker_s3_output "ftp://host/x"')
    assert "ran" not in result.out

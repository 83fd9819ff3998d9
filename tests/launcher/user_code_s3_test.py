# SPDX-License-Identifier: Apache-2.0
"""Code on S3: requests, signatures, credentials, errors."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator

import pytest
from http_answers import serving
from object_store import BUCKET, HELLO, KEYS, ObjectStore, job_tree, running_store, tar_gz


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    yield from running_store()


def test_an_archive_on_s3_is_fetched_and_run(folder, run, store):
    location = store.put(
        "code/source dir/a+b=ü.tar.gz", tar_gz({"train.py": HELLO, "pkg/m.py": ""})
    )
    tree = job_tree(folder, location)

    result = run(tree, SM_LOG_LEVEL="10", **store.settings)

    assert result.code == 0, result.err
    assert f"Fetching code from {location} into {tree.base / 'code'}" in result.err
    assert "hello from" in result.out
    assert sorted(os.listdir(tree.base / "code")) == ["pkg", "train.py"]
    assert f"SM_MODULE_DIR={location}" in result.err


def test_an_object_that_is_too_large_is_not_fetched(folder, run, store):
    location = store.put("code/large.tar.gz", os.urandom(200_000))
    tree = job_tree(folder, location)

    result = run(tree, SM_LAUNCH_CODE_MAX_BYTES="100000", **store.settings)

    assert result.code == 1
    assert f"download of {location}: it has more than 100000 bytes" in tree.failure
    assert "raise SM_LAUNCH_CODE_MAX_BYTES" in tree.failure
    assert os.listdir(tree.base / "code") == []


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
def test_both_other_endpoint_variables_count(folder, run, store, variable):
    settings = {**store.settings, variable: store.url}
    del settings["S3_ENDPOINT_URL"]

    result = run(job_tree(folder, store.put("e", tar_gz({"train.py": HELLO}))), **settings)

    assert result.code == 0, result.err


def test_s3_checks_the_signature_of_a_download(folder, run, store):
    """moto, asked to, computes signatures itself (with botocore) and refuses wrong ones."""
    location = store.put("signed/a b.tar.gz", tar_gz({"train.py": HELLO}))

    with store.checking_signatures() as good:
        (folder / "good").mkdir()
        (folder / "bad").mkdir()
        well = run(job_tree(folder / "good", location), **(store.settings | good))
        wrong = good | {"AWS_SECRET_ACCESS_KEY": "x" * 40}
        ill = run(job_tree(folder / "bad", location), **(store.settings | wrong))

    assert well.code == 0, well.err
    assert ill.code == 1
    assert "HTTP status 403 SignatureDoesNotMatch" in ill.tree.failure
    assert "credentials came from variables" in ill.tree.failure
    assert "x" * 40 not in ill.err + ill.tree.failure


def test_a_missing_object_is_named_with_bucket_key_and_status(folder, run, store):
    result = run(job_tree(folder, f"s3://{BUCKET}/no/such.tar.gz"), **store.settings)

    assert result.code == 1
    assert result.tree.failure.startswith(
        f"download of s3://{BUCKET}/no/such.tar.gz: bucket {BUCKET}, key no/such.tar.gz: "
        "HTTP status 404 NoSuchKey"
    )


def test_an_object_that_is_no_archive_is_refused(folder, run, store):
    result = run(job_tree(folder, store.put("train.py", HELLO.encode())), **store.settings)

    assert result.code == 1
    assert "are no tar.gz archive" in result.tree.failure


def test_a_cut_archive_fails_the_job(folder, run, store):
    whole = tar_gz({"train.py": os.urandom(300_000)})
    result = run(job_tree(folder, store.put("cut", whole[: len(whole) // 2])), **store.settings)

    assert result.code == 1
    assert "not a whole archive" in result.tree.failure


def test_passing_errors_of_s3_are_retried(folder, run):
    archive = tar_gz({"train.py": HELLO})
    answers = [(503, b"<Error><Code>SlowDown</Code></Error>"), (500, b""), (200, archive)]
    with serving(lambda _: answers.pop(0)) as (url, seen):
        result = run(job_tree(folder, "s3://b/k.tar.gz"), S3_ENDPOINT_URL=url, **KEYS)

    assert result.code == 0, result.err
    assert [path for _, path, _ in seen] == ["/b/k.tar.gz"] * 3
    assert "attempt 1 of 8: HTTP status 503" in result.err
    assert "attempt 2 of 8: HTTP status 500" in result.err


def test_a_transfer_that_breaks_off_is_retried(folder, run):
    archive = tar_gz({"train.py": HELLO})
    attempts: list[int] = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes]:
        attempts.append(1)
        if len(attempts) == 1:
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(archive)))
            handler.end_headers()
            handler.wfile.write(archive[: len(archive) // 2])
            handler.wfile.flush()
            handler.connection.close()
            raise ConnectionAbortedError
        return 200, archive

    with serving(answer) as (url, seen):
        result = run(job_tree(folder, "s3://b/k"), S3_ENDPOINT_URL=url, **KEYS)

    assert result.code == 0, result.err
    assert len(seen) == 2


def test_the_region_order_shows_in_the_signature(folder, run):
    archive = tar_gz({"train.py": HELLO})
    for number, (variables, region) in enumerate(
        [
            ({"AWS_REGION": "r-1", "SAGEMAKER_REGION": "r-2"}, "r-1"),
            ({"SAGEMAKER_REGION": "r-2", "AWS_DEFAULT_REGION": "r-3"}, "r-2"),
            ({"AWS_DEFAULT_REGION": "r-3"}, "r-3"),
            ({}, "us-east-1"),
        ]
    ):
        with serving(lambda _: (200, archive)) as (url, seen):
            case = folder / str(number)
            case.mkdir()
            run(
                job_tree(case, "s3://b/k"), S3_ENDPOINT_URL=url, HOME=str(case), **KEYS, **variables
            )
        assert f"/{region}/s3/aws4_request" in seen[0][2]["authorization"]


def test_a_profile_of_the_shared_files_signs(folder, run):
    files = folder / "credentials"
    files.write_text(
        "[default]\naws_access_key_id=NO\naws_secret_access_key=NO\n"
        "[other]\naws_access_key_id = AKOTHER\naws_secret_access_key = s\n"
    )
    config = folder / "config"
    config.write_text("[profile other]\nregion = eu-north-1\n")
    with serving(lambda _: (200, tar_gz({"train.py": HELLO}))) as (url, seen):
        result = run(
            job_tree(folder, "s3://b/k"),
            S3_ENDPOINT_URL=url,
            AWS_PROFILE="other",
            AWS_SHARED_CREDENTIALS_FILE=str(files),
            AWS_CONFIG_FILE=str(config),
        )

    assert result.code == 0, result.err
    assert "Credential=AKOTHER/" in seen[0][2]["authorization"]
    assert "/eu-north-1/s3/" in seen[0][2]["authorization"]


def role(key: str) -> bytes:
    return json.dumps(
        {
            "AccessKeyId": key,
            "SecretAccessKey": "s",
            "Token": "session",
            "Expiration": "2099-01-01T00:00:00Z",
        }
    ).encode()


def test_the_containers_credentials_sign_with_their_token(folder, run):
    token = folder / "token"
    token.write_text("Bearer abc\n")

    def answer(handler: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes]:
        if handler.path == "/creds":
            right = handler.headers["Authorization"] == "Bearer abc"
            return (200, role("AKTASK")) if right else (401, b"")
        return 200, tar_gz({"train.py": HELLO})

    with serving(answer) as (url, seen):
        result = run(
            job_tree(folder, "s3://b/k"),
            S3_ENDPOINT_URL=url,
            HOME=str(folder),
            AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{url}/creds",
            AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(token),
        )

    assert result.code == 0, result.err
    signed = seen[-1][2]
    assert "Credential=AKTASK/" in signed["authorization"]
    assert signed["x-amz-security-token"] == "session"
    assert "x-amz-security-token" in signed["authorization"]


def test_the_instances_role_signs_by_imds_v2(folder, run):
    def answer(handler: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes]:
        path = handler.path
        if path == "/latest/api/token" and handler.command == "PUT":
            return 200, b"session-token"
        if path.startswith("/latest/"):
            if handler.headers["X-aws-ec2-metadata-token"] != "session-token":
                return 401, b""
            return 200, role("AKROLE") if path.endswith("/worker") else b"worker"
        return 200, tar_gz({"train.py": HELLO})

    with serving(answer) as (url, seen):
        result = run(
            job_tree(folder, "s3://b/k"),
            S3_ENDPOINT_URL=url,
            HOME=str(folder),
            AWS_EC2_METADATA_SERVICE_ENDPOINT=url,
        )

    assert result.code == 0, result.err
    assert "Credential=AKROLE/" in seen[-1][2]["authorization"]


def test_no_credentials_is_said_with_where_it_looked(folder, run):
    result = run(job_tree(folder, "s3://b/k"), HOME=str(folder), AWS_EC2_METADATA_DISABLED="true")

    assert result.code == 1
    assert result.tree.failure.startswith("no AWS credentials: AWS_ACCESS_KEY_ID is not set; ")
    assert "AWS_EC2_METADATA_DISABLED is set" in result.tree.failure


def test_a_stop_while_fetching_ends_the_job(folder, start):
    reached = threading.Event()
    release = threading.Event()

    def answer(_: http.server.BaseHTTPRequestHandler) -> tuple[int, bytes]:
        reached.set()
        release.wait(60)
        return 200, b""

    with serving(answer) as (url, _):
        job = start(job_tree(folder, "s3://b/k"), S3_ENDPOINT_URL=url, **KEYS)
        assert reached.wait(60)
        job.process.terminate()
        result = job.finish()
        release.set()

    assert result.code == 143
    assert "asked to stop by SIGTERM" in result.tree.failure

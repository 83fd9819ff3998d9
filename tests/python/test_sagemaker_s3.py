# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of SMP v2 in S3, a local one: whole or not there, and errors by name."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError, SMPValidationError
from smdistributed.sagemaker._s3_objects import S3Objects, address_of
from smdistributed.sagemaker.checkpoint.utils import limit_num_subdirs
from smdistributed.sagemaker.distributed.checkpoint.async_utils import AsyncCallsQueue
from smdistributed.sagemaker.distributed.checkpoint.filesystem import (
    DistributedFileSystemReader,
    DistributedFileSystemWriter,
    path_to_file_system,
)
from smdistributed.sagemaker.distributed.checkpoint.state_dict_loader import load
from smdistributed.sagemaker.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from tests.object_store import BUCKET, ObjectStore, running_store

ONE = f"s3://{BUCKET}/job/step 1+é"
FEW = {"max_attempts": 2}


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    yield from running_store()


@pytest.fixture
def store(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in server.settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    yield server
    for key in server.objects():
        server.client.delete_object(Bucket=BUCKET, Key=key)


def content(value: float) -> dict[str, Any]:
    return {"weight": torch.full((8, 4), value), "step": int(value)}


def read(place: Any = ONE, **options: Any) -> float:
    found = content(0)
    load(found, checkpoint_id=place, **options)
    assert found["weight"].eq(float(found["step"])).all()
    return float(found["step"])


def refusal(place: Any = ONE, **options: Any) -> str:
    with pytest.raises(CheckpointException) as caught:
        read(place, **options)
    return str(caught.value)


def names(store: ObjectStore, place: str = ONE) -> list[str]:
    prefix = place.removeprefix(f"s3://{BUCKET}/") + "/"
    return sorted(key.removeprefix(prefix) for key in store.objects() if key.startswith(prefix))


def test_what_is_saved_is_loaded(store: ObjectStore) -> None:
    save(content(1), checkpoint_id=ONE, s3_region="eu-west-3")

    assert read(Path(ONE)) == read(ONE + "/") == 1
    metadata, data, sums = names(store)
    assert metadata == ".metadata"
    assert data.split("/")[0] == sums.split("/")[0]
    assert (data.split("/")[1], sums.split("/")[1]) == ("__0_0.distcp", "smp_digests.json")


def test_a_save_beside_training_has_what_the_tensors_were(store: ObjectStore) -> None:
    queue, values = AsyncCallsQueue(), content(1)

    index = async_save(values, checkpoint_id=ONE, queue=queue)
    values["weight"].fill_(9)

    assert queue.maybe_finalize_async_calls() == [index]
    assert read() == 1


def test_a_new_one_takes_the_place_of_the_old_one_alone(store: ObjectStore) -> None:
    save(content(1), checkpoint_id=ONE)
    save(content(5), checkpoint_id=ONE + "/below")
    store.put("job/step 1+é/smp-notes.txt", b"mine")
    before = names(store)

    save(content(2), checkpoint_id=ONE)

    assert (read(), read(ONE + "/below")) == (2, 5)
    assert len(names(store)) == len(before)
    assert "smp-notes.txt" in names(store)
    with pytest.raises(CheckpointException, match="overwrite is False"):
        save(content(3), storage_writer=DistributedFileSystemWriter(ONE, overwrite=False))
    assert read() == 2


@pytest.mark.parametrize("lost", [".distcp", "smp_digests.json", ".metadata"])
def test_a_save_that_ends_early_leaves_what_was_there(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    put = S3Objects.put

    def fails(self: S3Objects, file: Path, address: str) -> None:
        if address.endswith(lost):
            raise OSError("the host is gone")
        put(self, file, address)

    other = f"s3://{BUCKET}/job/other"
    save(content(1), checkpoint_id=ONE)
    with monkeypatch.context() as patched:
        patched.setattr(S3Objects, "put", fails)
        for place in (ONE, other):
            with pytest.raises(CheckpointException, match="the host is gone"):
                save(content(2), checkpoint_id=place)

    assert read() == 1
    assert f"there is no checkpoint of DCP in {other}" in refusal(other)
    save(content(3), checkpoint_id=ONE)
    assert (read(), len(names(store))) == (3, 3)


def test_damaged_objects_are_refused_by_name(store: ObjectStore) -> None:
    save(content(1), checkpoint_id=ONE)
    _, data, sums = names(store)
    whole = store.objects()
    key, sums_key = f"job/step 1+é/{data}", f"job/step 1+é/{sums}"

    changed = bytearray(whole[key])
    changed[len(changed) // 2] ^= 1
    for damaged, words in (
        (bytes(changed), "is damaged, or of another save"),
        (whole[key][:-5], "is cut off"),
        (whole[key] + b"x", "is of another save"),
    ):
        store.put(key, damaged)
        assert f"{ONE}/{data} {words}" in refusal()
    store.client.delete_object(Bucket=BUCKET, Key=key)
    assert f"download of {ONE}/{data}" in refusal()
    assert "404 NoSuchKey" in refusal()
    store.put(key, whole[key])
    store.put(sums_key, b"{")
    assert f"{ONE}/{sums} is damaged" in refusal()
    store.client.delete_object(Bucket=BUCKET, Key=sums_key)
    assert f"there is no sum of {ONE}/{data}" in refusal()
    store.put("job/step 1+é/.metadata", b"junk")
    assert f"cannot read {ONE}/.metadata" in refusal()


def test_requests_are_signed_and_what_s3_refuses_is_named(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"part_size": 5 << 20}
    large = {"weight": torch.arange(3 << 20, dtype=torch.int32)}  # 12 MiB: in parts
    with store.checking_signatures() as keys:
        for name, value in keys.items():
            monkeypatch.setenv(name, value)
        save(content(1), checkpoint_id=ONE)
        save(content(2), checkpoint_id=ONE)  # lists and removes
        save(large, checkpoint_id=f"s3://{BUCKET}/large", s3client_config=config)
        found = {"weight": torch.zeros_like(large["weight"])}
        load(found, checkpoint_id=f"s3://{BUCKET}/large")
        assert (read(), torch.equal(found["weight"], large["weight"])) == (2, True)

        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x" * 40)
        error = refusal()
        with pytest.raises(CheckpointException) as caught:
            save(content(3), checkpoint_id=ONE)

    for text in (error, str(caught.value)):
        assert "HTTP status 403 SignatureDoesNotMatch" in text
        assert "credentials came from variables" in text
        assert "x" * 40 not in text


def test_no_credentials_and_no_bucket_are_named(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CheckpointException, match=r"404 NoSuchBucket.*check bucket, key"):
        save(content(1), checkpoint_id="s3://nobody/job")
    assert "404 NoSuchBucket" in refusal("s3://nobody/job")
    with pytest.raises(CheckpointException, match="expected s3://bucket/prefix"):
        save(content(1), checkpoint_id="s3://")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "AWS_EC2_METADATA_DISABLED is set" in refusal()


@contextmanager
def cutting(url: str, cuts: int) -> Iterator[str]:
    """The server at ``url`` behind a line that is cut in the middle of the first requests."""
    host, port = url.removeprefix("http://").split(":")
    left = [cuts]
    listener = socket.create_server(("127.0.0.1", 0))

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other side is gone

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if left[0] > 0:
                left[0] -= 1
                client.recv(100)
                client.close()
                continue
            server = socket.create_connection((host, int(port)))
            for pair in ((client, server), (server, client)):
                threading.Thread(target=pass_on, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_a_line_that_is_cut_is_tried_again_and_not_for_ever(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(content(1), checkpoint_id=ONE)
    with cutting(store.url, 1) as url:
        monkeypatch.setenv("S3_ENDPOINT_URL", url)
        assert read() == 1
    with cutting(store.url, 1) as url:
        monkeypatch.setenv("S3_ENDPOINT_URL", url)
        save(content(2), checkpoint_id=ONE)
        assert read() == 2
    with cutting(store.url, 1000) as url:
        monkeypatch.setenv("S3_ENDPOINT_URL", url)
        assert "no answer after 2 attempts" in refusal(s3client_config=FEW)
        with pytest.raises(CheckpointException, match="no answer after 2 attempts"):
            save(content(3), checkpoint_id=ONE, s3client_config=FEW)
    monkeypatch.setenv("S3_ENDPOINT_URL", store.url)
    assert read() == 2


def test_plain_dcp_reads_and_writes_by_them(store: ObjectStore, tmp_path: Path) -> None:
    dcp.save(content(1), storage_writer=DistributedFileSystemWriter(ONE), no_dist=True)
    found = content(0)
    dcp.load(found, storage_reader=DistributedFileSystemReader(ONE), no_dist=True)
    assert (found["step"], found["weight"].unique().tolist()) == (1, [1.0])

    for name in names(store):  # as `aws s3 cp --recursive` does
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(store.objects()[f"job/step 1+é/{name}"])
    assert read(tmp_path) == 1
    dcp.load(found, checkpoint_id=tmp_path, no_dist=True)

    plain = f"s3://{BUCKET}/plain"
    dcp.save(content(4), checkpoint_id=tmp_path / "plain", no_dist=True)
    for file in (tmp_path / "plain").iterdir():  # which have no sums
        store.put(f"plain/{file.name}", file.read_bytes())
    assert read(plain) == 4

    reader, writer = DistributedFileSystemReader(tmp_path), DistributedFileSystemWriter(tmp_path)
    writer.reset(ONE)
    save(content(6), storage_writer=writer)
    assert read(ONE, storage_reader=reader) == 6
    assert read(tmp_path / "plain", storage_reader=reader) == 4


def test_files_by_address(store: ObjectStore) -> None:
    files = path_to_file_system(ONE)
    with files.create_stream(f"{ONE}/a&b", "wb") as stream:
        stream.write(b"content")  # type: ignore[attr-defined]
    files.rename(f"{ONE}/a&b", f"{ONE}/c")

    assert files.ls(ONE) == [f"{ONE}/c"]
    assert (files.exists(f"{ONE}/c"), files.exists(f"{ONE}/a&b")) == (True, False)
    with pytest.raises(FileNotFoundError), files.create_stream(f"{ONE}/a&b", "rb"):
        pass
    files.rm_file(f"{ONE}/c")
    assert files.ls(ONE) == []


def test_the_newest_below_a_prefix_are_kept(store: ObjectStore) -> None:
    folder = f"s3://{BUCKET}/runs"
    for step in (9, 10, 8):
        save(content(step), checkpoint_id=f"{folder}/model-{step}steps")
    store.put("runs/final", b"")

    limit_num_subdirs(folder, 2, regex=r".*\d+steps")

    assert {key.split("/")[1] for key in store.objects()} == {
        "model-10steps", "model-9steps", "final",
    }  # fmt: skip
    assert read(f"{folder}/model-9steps") == 9


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ({"part_sise": 1}, SMPValidationError, "s3client_config has part_sise; expected"),
        ({"part_size": 1}, SMPValidationError, "part_size=1; expected 5242880"),
        ({"max_attempts": -1}, SMPValidationError, "max_attempts=-1"),
        ({"unsigned": True}, SMPUnsupportedError, "need credentials"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(
    config: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        save({}, checkpoint_id=ONE, s3client_config=config)


def test_addresses_have_one_form() -> None:
    assert address_of("s3:///bucket//") == address_of(Path("S3://bucket")) == "s3://bucket"
    assert address_of(ONE + "/") == ONE

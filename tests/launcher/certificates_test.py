# SPDX-License-Identifier: Apache-2.0
"""SMP_EXTRA_CA_FILE: servers whose certificate only the job's own authority vouches for."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from http_answers import serving
from object_store import KEYS, job_tree, tar_gz

ASKS = """
import os, sys, urllib.request
print("got", urllib.request.urlopen(sys.argv[2]).read().decode())
names = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "PIP_CERT")
assert {os.environ[name] for name in names} == {os.environ["SSL_CERT_FILE"]}
assert open(os.environ["SSL_CERT_FILE"]).read().count("BEGIN CERTIFICATE") > 1
"""


@dataclass
class Authority:
    """A certificate authority, and a server's certificate from it for 127.0.0.1."""

    file: Path
    server: ssl.SSLContext


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder = tmp_path_factory.mktemp("authority")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    signs = ("-addext", "keyUsage=critical,keyCertSign")  # which Python 3.13 asks for
    openssl(*new, "-subj", "/CN=Company", *signs, "-keyout", "ca.key", "-out", "ca.pem")
    name = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    signed = ("-addext", "basicConstraints=CA:FALSE", "-CA", "ca.pem", "-CAkey", "ca.key")
    openssl(*new, *name, *signed, "-keyout", "server.key", "-out", "server.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return Authority(folder / "ca.pem", context)


def test_the_script_and_its_tools_trust_it(folder, run, authority):
    with serving(lambda _: (200, b"parcel"), authority.server) as (url, _):
        tree = job_tree(folder, None, url=url)
        (tree.base / "code" / "train.py").write_text(ASKS)

        refused = run(tree)
        (tree.base / "output" / "failure").unlink()
        trusted = run(tree, SMP_EXTRA_CA_FILE=str(authority.file))

    assert refused.code == 1
    assert "CERTIFICATE_VERIFY_FAILED" in refused.err
    assert trusted.code == 0, trusted.err
    assert "got parcel" in trusted.out


def test_code_is_fetched_with_it(folder, run, authority):
    archive = tar_gz({"train.py": "print('fetched')"})
    with serving(lambda _: (200, archive), authority.server) as (url, seen):
        settings = {"S3_ENDPOINT_URL": url, "AWS_REGION": "eu-west-3", **KEYS}

        result = run(
            job_tree(folder, "s3://bucket/code.tar.gz"),
            SMP_EXTRA_CA_FILE=str(authority.file),
            **settings,
        )

    assert result.code == 0, result.err
    assert "fetched" in result.out
    assert seen


def test_another_command_trusts_it(folder, run, authority):
    tree = job_tree(folder, None)

    result = run(
        tree, "sh", "-c", 'grep -c BEGIN "$SSL_CERT_FILE"', SMP_EXTRA_CA_FILE=str(authority.file)
    )

    assert result.code == 0, result.err
    assert int(result.out) > 1


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "no such file, or it is empty"), ("hello", "holds no PEM")]
)
def test_a_file_without_certificates_is_named(folder, run, content, reason):
    tree = job_tree(folder, None)
    (tree.base / "code" / "train.py").write_text("print('started')")
    file = folder / "company.pem"
    if content:
        file.write_text(content)

    result = run(tree, SMP_EXTRA_CA_FILE=str(file))

    assert result.code == 1
    assert "started" not in result.out
    assert f"SMP_EXTRA_CA_FILE={file}: " in tree.failure
    assert reason in tree.failure

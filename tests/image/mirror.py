# SPDX-License-Identifier: Apache-2.0
"""A package mirror of our own on loopback, over TLS, that writes down who asked for what."""

from __future__ import annotations

import base64
import hashlib
import http.server
import shutil
import ssl
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

WHEEL = "smp_marked-1.0-py3-none-any.whl"
METADATA = {
    "METADATA": "Metadata-Version: 2.1\nName: smp-marked\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "",
}


@dataclass
class Request:
    path: str
    agent: str
    user: str  # the user of basic authentication


@dataclass
class Mirror:
    """Any folder of it is an empty repository for apt, and an index with one wheel for pip."""

    folder: Path
    address: str = ""  # https://127.0.0.1:PORT
    requests: list[Request] = field(default_factory=list)

    @property
    def certificate(self) -> Path:
        return self.folder / "certificate.pem"

    @property
    def wheel(self) -> Path:
        return self.folder / WHEEL

    def make_files(self) -> None:
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        files = ["-keyout", self.folder / "key.pem", "-out", self.certificate]
        subprocess.run([*command, *files], capture_output=True, check=True)
        with zipfile.ZipFile(self.wheel, "w") as archive:
            for name, text in METADATA.items():
                archive.writestr(f"smp_marked-1.0.dist-info/{name}", text)

    def locked(self) -> str:
        """The wheel as a line of a hashed lock."""
        digest = hashlib.sha256(self.wheel.read_bytes()).hexdigest()
        return f"smp-marked==1.0 --hash=sha256:{digest}\n"

    def content(self, path: str) -> bytes | None:
        if path.endswith("/Packages"):
            return b""
        if path.endswith("/smp-marked/"):
            return f'<a href="{WHEEL}">{WHEEL}</a>'.encode()
        return self.wheel.read_bytes() if path.endswith(WHEEL) else None


def handler(mirror: Mirror) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 60  # for a client that says nothing, the handshake included

        def do_GET(self) -> None:
            kind, _, words = self.headers.get("Authorization", "").partition(" ")
            user = base64.b64decode(words).decode().partition(":")[0] if kind == "Basic" else ""
            mirror.requests.append(Request(self.path, self.headers.get("User-Agent", ""), user))
            content = mirror.content(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            """Says nothing: what was asked is in the list."""

    return Handler


@contextmanager
def running_mirror(folder: Path) -> Iterator[Mirror]:
    """Runs until the end of the block, on a port that the system chose."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    mirror = Mirror(folder)
    mirror.make_files()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(mirror.certificate, folder / "key.pem")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(mirror))
    server.socket = context.wrap_socket(
        server.socket,
        server_side=True,
        do_handshake_on_connect=False,  # but in its own thread
    )
    mirror.address = f"https://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield mirror
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

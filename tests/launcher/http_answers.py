# SPDX-License-Identifier: Apache-2.0
"""A local HTTP server that answers as a test says."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def serving(
    answer: Callable[[http.server.BaseHTTPRequestHandler], tuple[int, bytes]],
    secured: ssl.SSLContext | None = None,
) -> Iterator[tuple[str, list[tuple[str, str, dict[str, str]]]]]:
    """A local HTTP server that answers by a function, and the requests it has seen."""
    seen: list[tuple[str, str, dict[str, str]]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def reply(self) -> None:
            seen.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
            status, body = answer(self)
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = reply  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if secured is not None:
        server.socket = secured.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    scheme = "http" if secured is None else "https"
    yield f"{scheme}://127.0.0.1:{server.server_address[1]}", seen
    server.shutdown()
    thread.join()
    server.server_close()

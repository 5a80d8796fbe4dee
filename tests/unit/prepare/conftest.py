"""A small web server that answers as an engine would."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

Pages = dict[str, Any]


@pytest.fixture
def serve() -> Iterator[Callable[[Pages], int]]:
    """Give a function that serves {path: JSON or status} on loopback and tells the port."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(pages: Pages) -> int:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path, 404)
                self.send_response(page if isinstance(page, int) else 200)
                self.end_headers()
                if not isinstance(page, int):
                    self.wfile.write(json.dumps(page).encode())

            def log_message(self, *args: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server.server_port

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()

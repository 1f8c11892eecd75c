"""Open a socket and run the application with uvicorn."""

from __future__ import annotations

import errno
import socket
import webbrowser
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from lastseen.errors import LastSeenError
from lastseen.web.connections import limited


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket, opened before the model is loaded: a port in use is reported at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise LastSeenError(f"{host}: no such address ({error.strerror}); leave out --host") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise LastSeenError(f"port {port} is in use; choose another one: --port {port + 1}") from None
        raise LastSeenError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return listening


def address_of(listening: socket.socket) -> str:
    """The address of the page; of a server that listens on all addresses, one that others can use."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = _own_address() or "127.0.0.1"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _own_address() -> str | None:
    """The address of this machine in its network. Nothing is sent: connecting UDP only picks a way out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way, suppress(OSError):
        way.connect(("192.0.2.1", 9))  # an address for documentation
        return str(way.getsockname()[0])
    return None


class _Server(uvicorn.Server):
    """Ends event streams first on shutdown: uvicorn waits for open connections."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app.state.jobs.closed = True
        super().handle_exit(sig, frame)


def config_of(app: FastAPI, **options: Any) -> uvicorn.Config:
    """uvicorn with the application's limits; the page needs no WebSocket."""
    return uvicorn.Config(
        app, http=limited(app.state.limits), ws="none", access_log=False, use_colors=False, **options
    )


def run(app: FastAPI, listening: socket.socket, *, open_page: str | None = None) -> None:
    """Serve until Ctrl-C; `open_page` is an address to open in the browser."""
    config = config_of(app, log_level="warning", server_header=False, timeout_graceful_shutdown=3)
    if open_page:
        webbrowser.open(open_page)
    with suppress(KeyboardInterrupt):  # uvicorn raises it again after shutdown
        _Server(config, app).run(sockets=[listening])

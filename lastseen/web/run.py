"""Open a socket and run the application with uvicorn."""

from __future__ import annotations

import errno
import socket
import webbrowser
from contextlib import suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI

from lastseen.errors import LastSeenError


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
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class _Server(uvicorn.Server):
    """Ends event streams first on shutdown: uvicorn waits for open connections."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app.state.jobs.closed = True
        super().handle_exit(sig, frame)


def run(app: FastAPI, listening: socket.socket, *, open_page: bool = False) -> None:
    """Serve until Ctrl-C."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        use_colors=False,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    if open_page:
        webbrowser.open(address_of(listening))
    with suppress(KeyboardInterrupt):  # uvicorn raises it again after shutdown
        _Server(config, app).run(sockets=[listening])

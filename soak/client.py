"""A real `lastseen serve` and plain requests to it, over loopback only."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soak.case import Broken
from soak.programs import ended, started, wait_until

HOST = "127.0.0.1"
START_S, ANSWER_S, END_S = 60.0, 30.0, 20.0
DOCUMENTED = (503, 507)  # too much at once, and no room on the disk
ADDRESS = re.compile(rf"http://{re.escape(HOST)}:(\d+)/")


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body; the status must be one that is documented."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=ANSWER_S)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            status, data = answer.status, answer.read()
        except TimeoutError:
            raise Broken(f"{method} {path:.80}: no answer in {ANSWER_S:g} s") from None
        finally:
            connection.close()
        check_status(status, f"{method} {path:.80}")
        return status, data

    def json(self, method: str, path: str, value: Any = None) -> tuple[int, Any]:
        body = None if value is None else json.dumps(value).encode()
        status, data = self.ask(method, path, body, {"Content-Type": "application/json"})
        return status, json.loads(data) if data else None

    def raw(self) -> socket.socket:
        return socket.create_connection((HOST, self.port), timeout=ANSWER_S)

    def memory_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        return int(match[1]) * 1024 if match else 0

    def is_quiet(self) -> bool:
        """No job is waiting or running."""
        _, jobs = self.json("GET", "/api/jobs")
        return all(job["state"] in ("done", "failed", "cancelled") for job in jobs)


def check_status(status: int, what: str) -> None:
    if status >= 500 and status not in DOCUMENTED:
        raise Broken(f"{what}: status {status}")


@contextmanager
def serving(scratch: Path, *words: object) -> Iterator[Server]:
    """A server on a free port; in the end it must stop when it is told to, and have said nothing odd."""
    log = scratch / "serve"
    process = started("serve", *words, "--port", 0, "--quiet", log=log)
    out, err = log.with_suffix(".out"), log.with_suffix(".err")
    try:
        if not wait_until(
            lambda: bool(ADDRESS.search(out.read_text())) or process.poll() is not None, START_S
        ):
            raise Broken(f"the server did not start in {START_S:g} s")
        match = ADDRESS.search(out.read_text())
        if match is None:
            raise Broken(f"the server did not start: {err.read_text()[-300:]!r}")
        server = Server(process, int(match[1]))
        if not wait_until(lambda: _is_up(server), START_S, every_s=0.05):
            raise Broken("the server does not answer")
        yield server
        if process.poll() is not None:
            raise Broken(f"the server ended by itself: {err.read_text()[-300:]!r}")
        process.send_signal(signal.SIGINT)
        status, _, said = ended(process, log, END_S)
        if status not in (0, 130):
            raise Broken(f"told to stop, the server ended with status {status}: {said[-300:]!r}")
        if "Traceback" in said or "internal error" in said:
            raise Broken(f"the server printed {said[-300:]!r}")
    finally:
        process.kill()
        process.wait()


def _is_up(server: Server) -> bool:
    try:
        return server.ask("GET", "/api/jobs")[0] == 200
    except OSError:
        return False


def back_to(server: Server, before_bytes: int, allowance_bytes: int, within_s: float) -> None:
    """After a load: it answers, has nothing left to do, and gave the memory back."""
    if server.process.poll() is not None:
        raise Broken("the server is gone")
    if not wait_until(server.is_quiet, within_s, every_s=0.2):
        raise Broken(f"its jobs have not ended after {within_s:g} s")
    status, _ = server.ask("GET", "/api/videos")
    if status != 200:
        raise Broken(f"afterwards /api/videos has status {status}")
    ends = time.monotonic() + 10
    while (now := server.memory_bytes()) > before_bytes + allowance_bytes:
        if time.monotonic() > ends:
            raise Broken(f"memory was {before_bytes >> 20} MiB before and is {now >> 20} MiB after")
        time.sleep(0.2)

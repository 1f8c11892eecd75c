"""uvicorn's HTTP protocol with limits: as many connections as the machine can bear, and none for ever.

uvicorn ends a connection only if nothing at all comes after an answer. Here one is ended as well if the head
of a request is not there in time, if a body trickles in, and if the client does not take its answer.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from lastseen.web.errors import RETRY_S
from lastseen.web.limits import Limits

LOOKS = 4  # at a connection in the shortest of its times


def limited(limits: Limits) -> type[H11Protocol]:
    """The protocol for `uvicorn.Config(http=...)`."""
    return type("LimitedProtocol", (TimedProtocol,), {"limits": limits})


class TimedProtocol(H11Protocol):
    limits = Limits()
    _timer: asyncio.TimerHandle | None = None
    _state: object = None  # what the client is to do now; the time counts from when that began
    _since = 0.0
    _heard = 0.0  # when it last sent something
    _taken = 0  # bytes of a body in the current window
    _resumed = 0  # how often the client took what was waiting for it
    _is_refused = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._heard = self.loop.time()
        if len(self.connections) > self.limits.connections:
            # One that is refused is told so when it asks. Until then it is idle and goes first.
            self._is_refused = not self._replaces_an_idle_one()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_refused:
            self._end(429, "too many connections; try again in a moment")
            return
        self._heard = self.loop.time()
        self._taken += len(data)
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """To what is no request. To one before it that is under way no answer can follow any more."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def resume_writing(self) -> None:
        self._resumed += 1
        super().resume_writing()

    @property
    def _is_idle(self) -> bool:
        """Whether a request is to come next, and all before it is answered and taken."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered and not self.transport.is_closing() and not self.transport.get_write_buffer_size()

    def _replaces_an_idle_one(self) -> bool:
        """Whoever is in the middle of something stays; of the others the one goes that was silent longest."""
        others = [other for other in self.connections if isinstance(other, TimedProtocol)]
        idle = [other for other in others if other is not self and other._is_idle]
        if not idle:
            return False
        min(idle, key=lambda other: other._heard).transport.abort()
        return True

    def _look(self) -> None:
        limits = self.limits
        now, state = self.loop.time(), self._state_now()
        if state != self._state:
            self._state, self._since, self._taken = state, now, 0
        passed_s = now - self._since
        match state[0]:
            case "reading" if passed_s >= limits.reader_s:
                self.transport.abort()  # closing would wait until the rest is taken
            case "head" if passed_s >= limits.head_s:
                is_begun = self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]
                self._end(408 if is_begun else None, "the head of the request did not come in time")
            case "body" if passed_s >= limits.body_window_s:
                if self._taken < limits.body_bytes_s * limits.body_window_s:
                    self._end(408, "the body of the request came too slowly; send it again")
                self._since, self._taken = now, 0
        shortest = min(limits.head_s, limits.body_window_s, limits.reader_s)
        self._timer = self.loop.call_later(shortest / LOOKS, self._look)

    def _state_now(self) -> tuple[str, object]:
        """What the client is to do; the second part differs from one such time to the next."""
        if self.transport.is_closing():
            return "reading", None
        if self.flow.write_paused:
            return "reading", self._resumed
        if self.cycle is None or self.cycle.response_complete:
            return "head", self.cycle
        if self.conn.their_state is h11.SEND_BODY and not self.flow.read_paused:
            return "body", self.cycle
        return "answer", self.cycle  # that is for the server to do

    def _end(self, status: int | None, detail: str = "") -> None:
        """Close, with an answer if none has begun."""
        has_begun = (
            self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        )
        if status is not None and not has_begun:
            body = json.dumps({"detail": detail})
            self.transport.write(
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nRetry-After: {RETRY_S}\r\nConnection: close\r\n"
                f"X-Content-Type-Options: nosniff\r\n\r\n{body}".encode()
            )
        self.transport.close()

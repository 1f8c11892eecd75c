"""Which requests are accepted: only those of this machine's user, not of other sites in the same browser.

Another site can reach a local server in two ways: by a name that resolves to 127.0.0.1 (DNS rebinding,
detected by the Host header), and by requests from its own pages (detected by Origin and Sec-Fetch-Site).
A server that others can reach has a token besides (`token.py`).
"""

from __future__ import annotations

import ipaddress
import logging
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lastseen.web.errors import RETRY_S
from lastseen.web.limits import Limits
from lastseen.web.token import Token

LOOPBACK = ("127.0.0.1", "localhost", "::1")
READING = ("GET", "HEAD")
FILES = ("/api/uploads", "/api/pictures")  # their bodies are files, with limits of their own
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
log = logging.getLogger("lastseen")


class Guard:
    """Refuses requests from pages other than this server's; requests from no page (curl) pass."""

    def __init__(self, app: ASGIApp, host: str, token: str | None, limits: Limits) -> None:
        self.app, self.host, self.limits = app, host, limits
        self.token = None if token is None else Token(token)
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        given = Headers(scope=scope)
        reason = refusal(scope["method"], scope["path"], given, self.host)
        if reason is not None:
            await JSONResponse({"detail": reason}, 403)(scope, receive, send_with_headers)
            return
        if self.token is not None and (answer := self.token.answer(scope, given)) is not None:
            await answer(scope, receive, send_with_headers)
            return
        if self._under_way >= self.limits.requests:
            detail = {"detail": "too many requests at once; try again in a moment"}
            retry = {"Retry-After": str(RETRY_S)}
            await JSONResponse(detail, 429, retry)(scope, receive, send_with_headers)
            return
        if scope["path"] not in FILES:
            receive = self._limited(receive)
        self._under_way += 1
        try:
            await self.app(scope, receive, send_with_headers)
        except (OSError, RuntimeError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if not started or not isinstance(cause, OSError):
                raise
            # The file that was being sent went away: all that is left is to end the connection.
            log.warning("%s broke off: %s", scope["path"], cause.strerror)
        finally:
            self._under_way -= 1

    def _limited(self, receive: Receive) -> Receive:
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self.limits.json_bytes:
                raise HTTPException(413, f"a request like this takes at most {self.limits.json_bytes} bytes")
            return message

        return limited


def refusal(method: str, path: str, headers: Headers, bound_to: str) -> str | None:
    """Why a request is refused; None if it is accepted."""
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not is_own_host(hosts[0], bound_to):
        return "this server answers only to its own address; open http://127.0.0.1 and its port"
    site = headers.get("sec-fetch-site", "none")
    if site not in ("same-origin", "none"):
        opens_the_page = method in READING and path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if not opens_the_page:  # other sites may link to the page, nothing else
            return "requests from other sites are refused"
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"http://{hosts[0].lower()}":
        return "requests from other origins are refused"
    return None


def is_own_host(host: str, bound_to: str) -> bool:
    """Whether a Host header names this machine. Anyone can make a name resolve here, but not an address."""
    try:
        parts = urlsplit(f"//{host}")
        name, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if name is None or parts.username is not None or parts.path or parts.query or parts.fragment:
        return False
    if name in LOOPBACK or name == bound_to.lower():
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return bound_to in ("0.0.0.0", "::")

"""Which requests are accepted: only those of this machine's user, not of other sites in the same browser.

Another site can reach a local server in two ways: by a name that resolves to 127.0.0.1 (DNS rebinding,
detected by the Host header), and by requests from its own pages (detected by Origin and Sec-Fetch-Site).
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "::1")
READING = ("GET", "HEAD")
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


class Guard:
    """Refuses requests from pages other than this server's; requests from no page (curl) pass."""

    def __init__(self, app: ASGIApp, host: str = "127.0.0.1") -> None:
        self.app, self.host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        reason = refusal(scope["method"], scope["path"], Headers(scope=scope), self.host)
        if reason is None:
            await self.app(scope, receive, send_with_headers)
        else:
            await JSONResponse({"detail": reason}, 403)(scope, receive, send_with_headers)


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

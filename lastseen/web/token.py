"""The token of a server that others can reach: whoever has it is let in, nobody else.

GET /?token=...                 sets a cookie and leads to the page without the token in its address
Authorization: Bearer ...       for programs
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Scope

from lastseen.errors import LastSeenError

LEAST_LETTERS = 16  # of a chosen token: guessing over a network takes thousands of years
REFUSED = "this server needs its token: open the address that it printed, or send Authorization: Bearer TOKEN"


class Token:
    def __init__(self, token: str) -> None:
        self._digest = _digest(token)

    def answer(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request that may not go on; None if it has the token."""
        name = f"lastseen-{(scope.get('server') or ('', 0))[1]}"  # browsers tell cookies not by port
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if scope["path"] == "/" and any(self._is_right(_digest(text)) for text in given):
            leads_on = RedirectResponse("/", 303)
            leads_on.set_cookie(name, self._digest, httponly=True, samesite="strict", path="/")
            return leads_on
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._is_right(_digest(bearer.strip())):
            return None
        if any(self._is_right(cookie_parser(line).get(name, "")) for line in headers.getlist("cookie")):
            return None
        return JSONResponse({"detail": REFUSED}, 401, {"WWW-Authenticate": "Bearer"})

    def _is_right(self, digest: str) -> bool:
        return hmac.compare_digest(digest.encode(), self._digest.encode())  # takes as long for any digest


def checked(token: str) -> str:
    if len(token) < LEAST_LETTERS or not token.isascii() or not token.isprintable() or " " in token:
        raise LastSeenError(
            f"a token has {LEAST_LETTERS} or more letters, digits and signs, no spaces; "
            "leave out --token to get a random one"
        )
    return token


def random_token() -> str:
    return secrets.token_urlsafe(24)


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach the server."""
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


def with_token(address: str, token: str | None) -> str:
    return address if token is None else f"{address}?token={quote(token, safe='')}"


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()

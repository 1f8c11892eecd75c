"""create_app: the page, the API and the request guard."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.middleware import Middleware

from lastseen import __version__
from lastseen.errors import IndexStoreError, LastSeenError
from lastseen.localizer import Localizer
from lastseen.web.answers import answer_routes
from lastseen.web.jobs import Jobs
from lastseen.web.media import Busy, DiskFull, Missing, Refused, Settings, Shelf, TooLarge
from lastseen.web.security import Guard
from lastseen.web.videos import video_routes
from lastseen.web.work import Work

STATUS: dict[type[LastSeenError], int] = {
    Refused: 403,
    Missing: 404,
    Busy: 409,
    IndexStoreError: 409,
    TooLarge: 413,
    DiskFull: 507,
    LastSeenError: 422,
}
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def create_app(settings: Settings, localizer: Localizer) -> FastAPI:
    """The application; it starts indexing the videos named in the settings at once."""
    shelf, jobs = Shelf(settings), Jobs()
    work = Work(shelf, jobs, localizer)
    for path in settings.files:
        shelf.checked(path)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with shelf.open():
            jobs.start()
            for path in settings.files:
                work.read(shelf.add(str(path.resolve())))
            try:
                yield
            finally:
                jobs.close()

    app = FastAPI(
        title="lastseen",
        version=__version__,
        description="Where did I last see this? For the page of `lastseen serve`, and for programs.",
        docs_url=None,  # FastAPI's own pages load scripts from other servers
        redoc_url=None,
        lifespan=lifespan,
        middleware=[Middleware(Guard, host=settings.host)],
    )
    app.state.jobs, app.state.shelf = jobs, shelf
    app.include_router(video_routes(shelf, work))
    app.include_router(answer_routes(shelf, jobs, work))
    _add_page(app)

    @app.exception_handler(LastSeenError)
    def error_response(request: Request, error: LastSeenError) -> JSONResponse:
        status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
        return JSONResponse({"detail": _plain(str(error))}, status)

    @app.exception_handler(RequestValidationError)
    def validation_error_response(request: Request, error: RequestValidationError) -> JSONResponse:
        lines = [f"{'.'.join(str(part) for part in e['loc'][1:])}: {e['msg']}" for e in error.errors()]
        return JSONResponse({"detail": _plain("; ".join(lines))}, 422)

    return app


def _add_page(app: FastAPI) -> None:
    """Serve the page's files, and no others, from memory."""
    folder = files("lastseen.web") / "page"
    page = {file.name: file.read_bytes() for file in folder.iterdir() if file.name.split(".")[-1] in TYPES}

    def answer(request: Request, name: str) -> Response:
        if name not in page:
            raise Missing("no such page")
        tag = f'"{hashlib.sha256(page[name]).hexdigest()[:16]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(page[name], media_type=TYPES[name.split(".")[-1]], headers=headers)

    @app.get("/", include_in_schema=False)
    def index(request: Request) -> Response:
        return answer(request, "index.html")

    @app.get("/api", include_in_schema=False)
    def requests(request: Request) -> Response:
        return answer(request, "requests.html")

    @app.get("/page/{name}", include_in_schema=False)
    def part(request: Request, name: str) -> Response:
        return answer(request, name)

    @app.get("/favicon.ico", include_in_schema=False)
    def icon(request: Request) -> Response:
        return answer(request, "icon.svg")


def _plain(text: str) -> str:
    """Replace what UTF-8 cannot encode: a request may contain a lone surrogate."""
    return text.encode("utf-8", "replace").decode()

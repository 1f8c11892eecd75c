"""create_app: the page, the API and the request guard."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.middleware import Middleware

from lastseen import __version__
from lastseen.errors import LastSeenError
from lastseen.localizer import Localizer
from lastseen.web.answers import answer_routes
from lastseen.web.errors import RETRY_S, Ending, Missing, TooMany, from_memory, from_system, plain, status_of
from lastseen.web.history import History
from lastseen.web.jobs import Jobs
from lastseen.web.media import Settings, Shelf
from lastseen.web.questions import question_routes
from lastseen.web.security import Guard
from lastseen.web.suggestions import suggestion_routes
from lastseen.web.turns import Turns
from lastseen.web.videos import video_routes
from lastseen.web.work import Work

log = logging.getLogger("lastseen")
SWEEP_S = 60.0  # interval at which old pictures are removed
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def create_app(settings: Settings, localizer: Localizer) -> FastAPI:
    """The application; it starts indexing the videos named in the settings at once."""
    limits = settings.limits
    shelf, jobs, turns = Shelf(settings), Jobs(limits), Turns(limits)
    work, history = Work(shelf, jobs, localizer), History(shelf, jobs)
    if len(settings.files) > limits.readings:
        raise LastSeenError(
            f"{len(settings.files)} videos are more than can wait ({limits.readings}); "
            "index them first: lastseen index FOLDER"
        )
    for path in settings.files:
        shelf.checked(path)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with shelf.open():
            jobs.start()
            for path in settings.files:
                work.read(shelf.add(str(path.resolve())))
            sweeping = asyncio.create_task(_sweep(shelf))
            try:
                yield
            finally:
                sweeping.cancel()
                jobs.close()

    app = FastAPI(
        title="lastseen",
        version=__version__,
        description="Where did I last see this? For the page of `lastseen serve`, and for programs.",
        docs_url=None,  # FastAPI's own pages load scripts from other servers
        redoc_url=None,
        lifespan=lifespan,
        middleware=[Middleware(Guard, host=settings.host, token=settings.token, limits=limits)],
    )
    app.state.jobs, app.state.shelf, app.state.limits = jobs, shelf, limits
    app.include_router(video_routes(shelf, work, turns))
    app.include_router(answer_routes(shelf, jobs, work, history, turns))
    app.include_router(question_routes(shelf, history, turns))
    app.include_router(suggestion_routes(shelf, localizer, turns))
    _add_page(app)

    @app.exception_handler(LastSeenError)
    def error_response(request: Request, error: LastSeenError) -> JSONResponse:
        headers = {"Retry-After": str(RETRY_S)} if isinstance(error, TooMany | Ending) else None
        return JSONResponse({"detail": plain(str(error))}, status_of(error), headers)

    @app.exception_handler(OSError)
    def system_error_response(request: Request, error: OSError) -> JSONResponse:
        log.warning("%s %s: %s", request.method, request.url.path, error)
        return error_response(request, from_system(error))

    @app.exception_handler(MemoryError)
    def memory_error_response(request: Request, error: MemoryError) -> JSONResponse:
        return error_response(request, from_memory())

    @app.exception_handler(RequestValidationError)
    def validation_error_response(request: Request, error: RequestValidationError) -> JSONResponse:
        lines = [f"{'.'.join(str(part) for part in e['loc'][1:])}: {e['msg']}" for e in error.errors()]
        return JSONResponse({"detail": plain("; ".join(lines))}, 422)

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


async def _sweep(shelf: Shelf) -> None:
    while True:
        await asyncio.sleep(SWEEP_S)
        await run_in_threadpool(shelf.pictures.sweep)

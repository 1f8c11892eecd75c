"""Routes for videos and pictures: list, add, upload, remove, show."""

from __future__ import annotations

import logging
import mimetypes
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, Response
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from lastseen.errors import LastSeenError
from lastseen.index import Index, IndexedVideo
from lastseen.render.still import jpeg
from lastseen.video.containers import is_file
from lastseen.web.answers import JobInfo, job_info, local_time
from lastseen.web.errors import Busy, Missing, TooLarge, from_system, plain
from lastseen.web.media import Entry, Shelf
from lastseen.web.pictures import pixels
from lastseen.web.turns import Turns
from lastseen.web.work import Work

log = logging.getLogger("lastseen")
MAX_PICTURE = 64 * 2**20  # bytes
ROOM_EVERY = 16 * 2**20  # bytes of an upload between two looks at the free disk space
SHOWN = 2048  # longer side in pixels of a picture that is sent back
REQUEST_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class VideoInfo(BaseModel):
    """`frames` of `expected` have been read, 5 a second; `file` tells whether it can be looked at."""

    id: str
    name: str
    duration: float
    width: int
    height: int
    fps: float
    recorded_at: str | None
    date_source: str | None  # recorded, container or file time; None: not in the index yet
    frames: int
    expected: int | None
    complete: bool
    bytes: int
    file: bool
    uploaded: bool
    job: str | None  # id of the job that indexes it


class Library(BaseModel):
    videos: list[VideoInfo]
    max_upload: int


class FolderInfo(BaseModel):
    path: str
    videos: list[str]


class AddVideo(BaseModel):
    path: str = Field(max_length=4096, description="In a folder that the server may read.")


class Added(BaseModel):
    video: VideoInfo
    job: JobInfo


class PictureInfo(BaseModel):
    id: str
    width: int
    height: int


def video_routes(shelf: Shelf, work: Work, turns: Turns) -> APIRouter:
    routes = APIRouter(prefix="/api", tags=["videos"])

    def info(entry: Entry, index: Index) -> VideoInfo:
        job, video = work.jobs.at_work_on(entry.id), entry.indexed
        source = video or shelf.opened(entry.id)
        return VideoInfo(
            id=entry.id,
            name=entry.name,
            duration=source.duration_s,
            width=source.width,
            height=source.height,
            fps=source.fps,
            recorded_at=local_time(video, 0.0, "seconds") if video else None,
            date_source=video.date_source if video else None,
            frames=video.frames - video.first if video else 0,
            expected=video.expected if video else None,
            complete=video is not None and video.complete,
            bytes=_size_bytes(index, video) if video else 0,
            file=entry.path is not None and is_file(entry.path),
            uploaded=entry.path is not None and entry.path.parent == shelf.uploads,
            job=job.id if job else None,
        )

    def begun(entry: Entry) -> Added:
        with shelf.index() as index:
            video = info(entry, index)  # before the job: it deletes a copy of an indexed video
            job = job_info(work.read(entry))
            return Added(job=job, video=video.model_copy(update={"job": job.id}))

    def begun_or_gone(entry: Entry) -> Added:
        """An upload that will not be read is not kept."""
        try:
            return begun(entry)
        except BaseException:
            if entry.path is not None:
                shelf.discard(entry.path)
            raise

    @routes.get("/videos")
    def list_videos() -> Library:
        """What is indexed or on its way there."""
        videos = []
        with shelf.index() as index:
            for entry in shelf.entries():
                try:
                    videos.append(info(entry, index))
                except (LastSeenError, OSError, ValueError, ArithmeticError) as error:
                    # Removed or damaged before it was indexed: one that cannot be described hides no other.
                    log.info("%s is not listed: %s", entry.name, error)
        return Library(videos=videos, max_upload=shelf.settings.max_upload)

    @routes.get("/folders")
    def list_folders() -> list[FolderInfo]:
        """The videos that may be added by their path."""
        return [FolderInfo(path=plain(str(folder)), videos=files) for folder, files in shelf.listed()]

    @routes.post("/videos", status_code=202)
    def add_video(wanted: AddVideo) -> Added:
        """Read a video of this machine into the index."""
        return begun(shelf.add(wanted.path))

    @routes.post("/uploads", status_code=202, openapi_extra=REQUEST_BODY)
    async def upload_video(
        request: Request,
        name: Annotated[str, Query(max_length=255)] = "video.mp4",
        written: Annotated[float | None, Query(description="Its date, in seconds since 1970.")] = None,
    ) -> Added:
        """Upload a video, as the body of the request, and read it into the index."""
        most = shelf.settings.max_upload
        building = await _receive(shelf, request, name, most)
        try:
            entry = await turns.upload(lambda: shelf.settled(building, written))
            return await run_in_threadpool(begun_or_gone, entry)
        finally:
            shelf.abandoned(building)

    @routes.delete("/videos/{id}", status_code=204)
    def remove_video(id: str) -> None:
        """Forget a video. The file stays where it is, unless it was uploaded."""
        if work.jobs.at_work_on(id):
            raise Busy("it is being read; cancel that first")
        shelf.remove(id)

    @routes.post("/videos/{id}/read", status_code=202)
    def read_video(id: str) -> Added:
        """Go on reading a video that was cancelled."""
        return begun(shelf.entry(id))

    @routes.get("/videos/{id}/file", response_class=FileResponse)
    def video_file(id: str) -> FileResponse:
        """The file itself; parts of it by Range requests."""
        path = shelf.file(id)
        return FileResponse(path, media_type=_media_type(path), stat_result=path.stat())

    @routes.get("/videos/{id}/frame", response_class=Response)
    async def video_frame(
        id: str,
        time: Annotated[float, Query(ge=0, le=1e7, description="Seconds.")] = 0.0,
        width: Annotated[int, Query(ge=16, le=4096, description="At most, of the longer side.")] = 1280,
    ) -> Response:
        """The picture on display at a moment, as JPEG."""

        def frame() -> bytes:
            video = shelf.opened(id)
            if time > video.duration_s + 0.5:
                raise Missing(f"no frame at {time:g} s; the video lasts {video.duration_s:.2f} s")
            return jpeg(video.frame_at(min(time, video.duration_s)).image, width)

        shown = await turns.frame(frame)
        return Response(shown, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=600"})

    @routes.post("/pictures", status_code=201, openapi_extra=REQUEST_BODY)
    async def upload_picture(
        request: Request,
        name: Annotated[str, Query(max_length=255)] = "picture",
    ) -> PictureInfo:
        """Upload a picture of the thing, as the body of the request."""
        building = await _receive(shelf, request, name, MAX_PICTURE)

        def kept() -> PictureInfo:
            height, width = pixels(building).shape[:2]
            return PictureInfo(id=shelf.pictures.keep(building), width=width, height=height)

        try:
            return await turns.picture(kept)
        except BaseException:
            shelf.abandoned(building)
            raise

    @routes.get("/pictures/{id}", response_class=Response)
    async def show_picture(id: str) -> Response:
        """The picture as it will be searched for: upright, as JPEG."""
        shown = await turns.picture(lambda: jpeg(shelf.pictures.read(id), SHOWN))
        return Response(shown, media_type="image/jpeg")

    return routes


async def _receive(shelf: Shelf, request: Request, name: str, most: int) -> Path:
    """Save the body of a request to a file, which is removed if it is too large or the request breaks off.

    What the request says of its size is believed only to refuse it early: what arrives is counted, and the
    disk is looked at again and again, as other uploads fill it, too.
    """
    declared = request.headers.get("content-length", "")
    shelf.check_size(int(declared) if declared.isdecimal() else 0, most)
    building, taken, checked = shelf.arriving(name), 0, 0
    try:
        with building.open("wb") as file:
            async for part in request.stream():
                taken += len(part)
                if taken > most:
                    shelf.check_size(taken, most)
                if taken - checked >= ROOM_EVERY:
                    checked = taken
                    shelf.check_room(0)
                await run_in_threadpool(file.write, part)
    except ClientDisconnect:
        shelf.abandoned(building)
        raise TooLarge("the upload broke off") from None
    except OSError as error:
        shelf.abandoned(building)
        raise from_system(error) from None
    except BaseException:
        shelf.abandoned(building)
        raise
    return building


def _size_bytes(index: Index, video: IndexedVideo) -> int:
    """0 if its files cannot be looked at: searching and `lastseen index verify` say what is wrong."""
    try:
        return index.size_bytes(video)
    except (OSError, ValueError):
        return 0


def _media_type(path: Path) -> str:
    """Browsers play QuickTime files only if they are declared as MP4."""
    guessed = mimetypes.guess_type(path.name)[0] or ""
    if guessed == "video/quicktime":
        return "video/mp4"
    return guessed if guessed.startswith("video/") else "application/octet-stream"

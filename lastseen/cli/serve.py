"""lastseen serve: the local web page."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from lastseen.cli.index import IndexFolder, engine_of
from lastseen.cli.shared import Device, EngineName, Masks, Quiet, Verbose, Weights, open_localizer
from lastseen.errors import LastSeenError

LIBRARIES = ("fastapi", "uvicorn", "starlette", "pydantic")
WARNINGS = {
    False: "others on the network who have the address with its token may see, add and remove your videos",
    True: "everybody who can reach this address may see, add and remove your videos: there is no token",
}
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def serve(
    videos: Annotated[
        list[Path] | None, typer.Argument(metavar="[VIDEO]...", help="Videos to add at the start.")
    ] = None,
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Where to listen; 0: any.")] = 8765,
    folder: IndexFolder = None,
    folders: Annotated[
        list[Path] | None,
        typer.Option(
            "--videos", metavar="FOLDER", help="Videos in it may be added from the page; repeatable."
        ),
    ] = None,
    max_upload: Annotated[str, typer.Option(metavar="SIZE", help="Largest upload, like 500M or 4G.")] = "4G",
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address to listen on; others who have the token can see your videos."
        ),
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            envvar="LASTSEEN_TOKEN",
            help="Token that every request needs (default with --host: a random one).",
        ),
    ] = None,
    no_token: Annotated[
        bool,
        typer.Option(
            "--no-token", help="With --host: require no token; everybody who can reach the page can use it."
        ),
    ] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    weights: Weights = None,
    masks: Masks = False,
    device: Device = None,
    engine: EngineName = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Ask in the browser: draw a box around the thing, press Find.

    Example: lastseen serve walk.mp4 --open

    Example: lastseen serve --videos ~/Videos

    Everything stays on this machine. Ctrl-C ends it; videos that were read stay in the index.
    """
    try:
        from lastseen.web.run import address_of, open_socket, run
        from lastseen.web.token import checked, is_loopback, random_token, with_token
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in LIBRARIES:
            raise LastSeenError(f"the page needs {error.name}; run: pip install 'lastseen[web]'") from None
        raise
    for given in folders or []:
        if not given.is_dir():
            raise LastSeenError(f"--videos {given}: no such folder")
    for video in videos or []:
        if not video.is_file():
            shown = re.sub(r"(?<=:/).*", "/…", str(video))  # an address may hold a password
            raise LastSeenError(f"{shown}: no such file; give a video, or a folder with --videos")
    if token is not None and no_token:
        raise LastSeenError("--token and --no-token (or LASTSEEN_TOKEN) contradict each other; give one")
    most = _bytes(max_upload)
    chosen_token = None if token is None else checked(token)
    with open_socket(host, port) as listening:
        if not is_loopback(listening):
            chosen_token = None if no_token else chosen_token or random_token()
            print(f"lastseen: warning: {WARNINGS[no_token]}", file=sys.stderr)
        chosen = engine or engine_of(folder)
        localizer = open_localizer(weights, False, None, device, quiet, chosen, masks=masks)
        from lastseen.index import default_folder
        from lastseen.web.media import Settings
        from lastseen.web.server import create_app

        settings = Settings(
            index=folder or default_folder(),
            folders=tuple(folders or ()),
            files=tuple(videos or ()),
            max_upload=most,
            host=host,
            token=chosen_token,
        )
        app = create_app(settings, localizer)
        address = with_token(address_of(listening), chosen_token)
        print(f"The page is at {address} (Ctrl-C ends it).", flush=True)
        run(app, listening, open_page=address if open_ else None)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    size = round(float(match[1]) * UNITS[match[2].upper()]) if match else 0
    if not size:
        raise LastSeenError(f"--max-upload {text}: expected a size like 500M or 4G")
    return size

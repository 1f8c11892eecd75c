"""lastseen index: encode videos once, so that searching them takes seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from lastseen.cli.bar import progress_bar
from lastseen.cli.cluster import Ray, Workers, index_with_ray, model_choice, refuse
from lastseen.cli.recorded import ADD_SCHEMA, facts, print_facts
from lastseen.cli.shared import (
    ERROR,
    NOT_FOUND,
    AsJson,
    Device,
    EngineName,
    Quiet,
    Verbose,
    Weights,
    open_localizer,
)
from lastseen.cli.terminal import complain
from lastseen.cli.usage import PlainCommand
from lastseen.errors import IndexStoreError, VideoError
from lastseen.files import one_line

if TYPE_CHECKING:
    from lastseen.index import Index, IndexedVideo
    from lastseen.index.record import Recording
    from lastseen.localizer import Localizer

IndexFolder = Annotated[
    Path | None,
    typer.Option(
        "--index", metavar="FOLDER", envvar="LASTSEEN_INDEX", help="The index (default: this user's own)."
    ),
]
REMOVE_SCHEMA = "lastseen/index-remove@1"
REPAIR_SCHEMA = "lastseen/index-repair@1"
Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Videos (default: all).")]


class _VideosOrAction(TyperGroup):
    """`lastseen index walk.mp4` means `lastseen index add walk.mp4`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["add", *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The actions, and what `add` takes: its name may be left out, so its options are the group's."""
        self.format_commands(ctx, formatter)
        add = self.commands["add"]
        add.format_options(add.context_class(add, info_name="add", parent=ctx), formatter)


index = typer.Typer(
    name="index",
    cls=_VideosOrAction,
    help="Encode videos once, so that questions about them take seconds.\n\n"
    "Example: lastseen index walk.mp4 holiday/; lastseen find keys.jpg\n\n"
    "Without a command it adds videos: arguments and options below are those of 'lastseen index add'.",
    subcommand_metavar="VIDEO... | COMMAND ...",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def open_index(folder: Path | None, *, create: bool = False) -> Index:
    from lastseen.index import Index, default_folder

    return Index(folder or default_folder(), create=create)


def engine_of(folder: Path | None) -> str | None:
    """The engine that made an index: the default for searching it."""
    from lastseen.index import default_folder
    from lastseen.index.database import FILE

    place = folder or default_folder()
    if not (place / FILE).is_file():
        return None
    with open_index(place) as index:
        return index.engine


@index.command(cls=PlainCommand)
def add(
    videos: Annotated[
        list[str],
        typer.Argument(
            metavar="VIDEO...", help="Files, folders, rtsp:// addresses, or camera (camera:1 ...)."
        ),
    ],
    folder: IndexFolder = None,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="small|full|compact",
            help="small: all tokens in few bits, 1 GB an hour; the default, but for models that cannot. "
            "full: exact, 14 GB. compact: .5 GB; decodes again.",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="The file is still being written: read on until it stops growing."),
    ] = False,
    settle: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="With --follow: time without growth after which the file is complete.",
        ),
    ] = 10.0,
    keep_hours: Annotated[
        float | None,
        typer.Option(metavar="H", min=0.0, help="Streams and --follow: remove what is older."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(metavar="M", min=0.0, help="Streams: stop after M minutes.")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Only part I of N of the list, to share the work between machines."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the video (default: the file's).")
    ] = None,
    recorded: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="When the recording began (default: what the file says)."),
    ] = None,
    weights: Weights = None,
    device: Device = None,
    engine: EngineName = None,
    allow_truncated: Annotated[
        bool, typer.Option("--allow-truncated", help="Take the readable part of damaged videos.")
    ] = False,
    ray: Ray = None,
    workers: Workers = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Encode videos and keep their features.

    Example: lastseen index walk.mp4 holiday/

    If it was stopped, the same command resumes. Videos that are in the index are skipped.
    """
    from lastseen.index import default_folder
    from lastseen.index.answers import parse_moment
    from lastseen.index.originals import checked_date, expanded
    from lastseen.index.originals import shard as part_of
    from lastseen.video.containers import head_of
    from lastseen.video.sources import is_live, without_password

    if keep not in (None, "small", "full", "compact"):
        raise IndexStoreError(f"--keep {keep}: choose small, full or compact")
    if ray is not None:
        refuse(ray, follow=follow, shard=shard, name=name, recorded=recorded)
        refuse(ray, keep_hours=keep_hours, minutes=minutes)
        model, where = model_choice(weights, device, engine), folder or default_folder()
        what = {"keep": keep, "allow_truncated": allow_truncated}
        raise typer.Exit(index_with_ray(where, ray, workers, videos, model, what, as_json, quiet))
    sources, by_name = expanded(videos), {str(Path(name).absolute()) for name in videos}
    sources = sources if shard is None else part_of(sources, shard)
    if name is not None and len(sources) > 1:
        raise IndexStoreError("--name goes with one video")
    if keep == "compact" and any(is_live(source) for source in sources):
        from lastseen.index.live import NOT_COMPACT

        raise IndexStoreError(NOT_COMPACT)
    moment = None if recorded is None else parse_moment(recorded)[1]
    if recorded is not None and moment is None:
        raise IndexStoreError(f"--recorded {recorded}: expected a date and time like '2026-11-15 10:30'")
    checked_date(moment)
    if len(sources) == 1 and not is_live(sources[0]) and not follow:
        head_of(Path(sources[0]))  # errors come before the model is loaded
    made_by = engine_of(folder)  # and those of the index, too
    localizer = open_localizer(weights, False, None, device, quiet, engine or made_by)
    failed = 0
    with open_index(folder, create=True) as index:
        index.sweep()
        index.bind(localizer)  # of another model: said once, not for each file
        output: dict[str, Any] = {"schema": ADD_SCHEMA, "videos": [], "failed": []}
        for source in sources:
            options = {"keep": keep, "name": name, "recorded": moment}
            try:
                shown = name or (without_password(source) if is_live(source) else Path(source).name)
                with progress_bar(shown, quiet) as progress:
                    done = _record(
                        index,
                        localizer,
                        source,
                        {**options, "progress": progress},
                        follow={"keep_hours": keep_hours, "settle_s": settle} if follow else None,
                        live={
                            "keep": keep,
                            "name": name,
                            "keep_hours": keep_hours,
                            "minutes": minutes,
                            "progress": progress,
                        },
                        allow_truncated=allow_truncated,
                        check=source in by_name,  # a whole folder would be read again and again
                    )
                output["videos"].append(facts(index, done))
                print_facts(output["videos"][-1], as_json, quiet)
                if done.broke_off:
                    raise VideoError(f"{done.broke_off}; what came before is kept")
            except (VideoError, IndexStoreError) as error:
                if len(sources) == 1 and not as_json:
                    raise
                complain(error)  # continue with the other files
                output["failed"].append({"source": without_password(source), "error": str(error)})
                failed += 1
    if as_json:
        print(json.dumps(output))
    if failed:
        raise typer.Exit(ERROR)


def _record(
    index: Index,
    localizer: Localizer,
    source: str,
    options: dict[str, Any],
    *,
    follow: dict[str, Any] | None,
    live: dict[str, Any],
    allow_truncated: bool,
    check: bool,
) -> Recording:
    from lastseen.index.live import record_live
    from lastseen.index.record import add_file, follow_file
    from lastseen.video.containers import unreadable_file
    from lastseen.video.sources import is_live

    if is_live(source):
        return record_live(index, localizer, source, **live)
    try:
        if follow is not None:
            return follow_file(index, localizer, source, **options, **follow)
        return add_file(index, localizer, source, **options, allow_truncated=allow_truncated, check=check)
    except (FileNotFoundError, PermissionError) as error:  # it was removed meanwhile
        raise unreadable_file(Path(source), error) from None


@index.command("list", cls=PlainCommand)
def list_(folder: IndexFolder = None, as_json: AsJson = False) -> None:
    """List the videos of the index.

    Example: lastseen index list
    """
    _show(folder, None, as_json)


@index.command(cls=PlainCommand)
def info(names: Names = None, folder: IndexFolder = None, as_json: AsJson = False) -> None:
    """Show everything that is known about videos.

    Example: lastseen index info walk.mp4
    """
    _show(folder, names, as_json, every_field=True)


@index.command(cls=PlainCommand)
def remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Videos to remove.")],
    folder: IndexFolder = None,
    as_json: AsJson = False,
) -> None:
    """Remove videos from the index; their files stay where they are.

    Questions that were kept about them are forgotten, too.

    Example: lastseen index remove walk.mp4
    """
    from lastseen.index.answers import megabytes

    with open_index(folder) as index:
        damaged = {str(id): id for id in index.catalogue.damaged_entries()}
        removed: list[dict[str, Any]] = []
        for name in [name for name in names if name in damaged]:
            index.remove_damaged(damaged[name])
            removed.append({"name": name, "bytes": 0})
            if not as_json:
                print(f"video {name}: forgotten")
        for video in [index.named(name) for name in names if name not in damaged]:
            removed.append({"name": video.name, "bytes": index.remove(video)})
            if not as_json:
                print(f"{one_line(video.name)}: forgotten, {megabytes(removed[-1]['bytes'])} freed")
    if as_json:
        print(json.dumps({"schema": REMOVE_SCHEMA, "removed": removed}))


@index.command(cls=PlainCommand)
def verify(names: Names = None, folder: IndexFolder = None, as_json: AsJson = False) -> None:
    """Compare the features and the videos' files with the catalogue.

    Example: lastseen index verify

    Exit status: 0 sound, 1 damaged, 2 error.
    """
    with open_index(folder) as index:
        videos = [index.named(name) for name in names] if names else index.catalogue.sound_videos()
        problems = index.problems() + [line for video in videos for line in index.verify(video)]
    if as_json:
        print(json.dumps({"schema": "lastseen/index-verify@1", "sound": not problems, "problems": problems}))
    else:
        for problem in problems:
            print(one_line(problem))
        print(f"{len(videos)} videos: {f'{len(problems)} problems' if problems else 'sound'}")
    raise typer.Exit(NOT_FOUND if problems else 0)


@index.command(cls=PlainCommand)
def repair(
    names: Names = None,
    folder: IndexFolder = None,
    weights: Weights = None,
    device: Device = None,
    engine: EngineName = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Encode damaged parts again from the videos' files.

    Example: lastseen index repair

    Exit status: 0 sound, 1 something stays damaged, 2 error.
    """
    from lastseen.index.repair import Repair
    from lastseen.index.repair import repair as repaired

    found: list[Repair] = []
    with open_index(folder) as index:
        videos = _chosen(index, names)
        localizer = open_localizer(weights, False, None, device, quiet, engine or index.engine)
        for video in videos:
            with progress_bar(video.name, quiet) as progress:
                found.append(repaired(index, localizer, video, progress))
            if not as_json:
                said = [found[-1].done, found[-1].stays]
                print(f"{video.name}: {'; '.join(filter(None, said)) or 'sound'}")
    if as_json:
        facts = [{"name": one.video.name, "done": one.done, "stays_damaged": one.stays} for one in found]
        print(json.dumps({"schema": REPAIR_SCHEMA, "videos": facts}))
    raise typer.Exit(NOT_FOUND if any(one.stays for one in found) else 0)


def _show(folder: Path | None, names: list[str] | None, as_json: bool, every_field: bool = False) -> None:
    from lastseen.index.answers import list_dict, list_text

    with open_index(folder) as index:
        videos = _chosen(index, names)
        if as_json:
            print(json.dumps(list_dict(index, videos)))
        elif every_field:
            for facts in list_dict(index, videos)["videos"]:
                print("\n".join(f"{key}: {one_line(str(value))}" for key, value in facts.items()) + "\n")
            print(f"made by: {index.catalogue.about().get('made_by')}")
        else:
            print(list_text(index, videos))


def _chosen(index: Index, names: list[str] | None) -> list[IndexedVideo]:
    return [index.named(name) for name in names] if names else index.videos()

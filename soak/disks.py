"""Full disks: a small file system in memory, mounted for the case alone, which is filled to the last byte.

Each case runs in a process with its own view of the file systems (`unshare`): its disk goes away with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from PIL import Image

from lastseen.errors import LastSeenError
from lastseen.index import Index
from soak.case import NORMAL, REFUSED, Broken, Case, Impossible
from soak.client import serving
from soak.kills import OUTPUTS, SHORT_S, add_words, check_whole, find_words
from soak.programs import ENVIRONMENT, command
from soak.samples import blocks, moving, save_tiny_model, write_video
from soak.servers import MOST_BYTES, check_alive, head, png, warm

NAME = "disks"
CASES = 16
LIMIT_S = 240.0
KIB = 1024
AMPLE = 64 * 2**20
ROOMY = 256 * 2**20  # uploads leave some space free for the rest of the system
RUN_S = 90.0


def prepare(folder: Path) -> None:
    try:
        subprocess.run([*alone(), "mount", "-t", "tmpfs", "none", "/mnt"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Impossible(f"no file system may be mounted here ({type(error).__name__})") from None
    save_tiny_model(folder / "model")
    write_video(folder / "walk.mp4", moving(30, 5), "libx264", fps=5)
    write_video(folder / "short.mp4", moving(SHORT_S, 5), "libx264", fps=5)
    (folder / "videos").mkdir()
    (folder / "videos" / "walk.mp4").hardlink_to(folder / "walk.mp4")
    Image.fromarray(blocks(7)).save(folder / "thing.png")
    if (
        command("index", "add", *add_words(folder, folder / "index"), log=folder / "add", limit_s=RUN_S)
        != NORMAL
    ):
        raise Broken("a sound video was not indexed")
    command("find", *find_words(folder, folder), log=folder / "find", limit_s=RUN_S)


def alone() -> list[str]:
    """A command in its own view of the file systems; without root, as root of its own world."""
    return ["unshare", "-m" if os.geteuid() == 0 else "-rm", "--"]


def run(case: Case) -> str:
    name = list(SCENARIOS)[case.number % len(SCENARIOS)]
    case.say(name.replace("_", " "))
    words = [case.seed, case.number, case.prepared, case.scratch]
    done = subprocess.run(
        [*alone(), sys.executable, "-m", "soak.disks", *map(str, words)],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not done.stdout.strip():
        raise Broken(f"{name}: {(done.stderr.strip().splitlines() or ['ended'])[-1]:.300}")
    outcome, what = json.loads(done.stdout.splitlines()[-1])
    if outcome not in (NORMAL, REFUSED):
        raise Broken(what)
    return str(outcome)


def inside(words: list[str]) -> None:
    """What runs in the process of its own."""
    seed, number, prepared, scratch = words
    case = Case(NAME, int(seed), int(number), Path(prepared), Path(scratch), lambda _: None)
    (case.scratch / "disk").mkdir()
    try:
        outcome, what = list(SCENARIOS.values())[case.number % len(SCENARIOS)](case), ""
    except (Broken, LastSeenError) as error:
        outcome, what = "failed", str(error)
    print(json.dumps([outcome, what]))


# --- the disk


def mounted(case: Case, size: int, *, again: bool = False) -> Path:
    disk = case.scratch / "disk"
    options = f"{'remount,' if again else ''}size={size // KIB}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", disk], check=True)
    return disk


def fill(disk: Path, leave: int) -> Path:
    """Fill the disk, but for so many bytes."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(64 * KIB))
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(KIB))
    os.truncate(filler, max(0, filler.stat().st_size - leave))
    return filler


def free(disk: Path) -> int:
    facts = os.statvfs(disk)
    return facts.f_bavail * facts.f_frsize


# --- what is done on it; each returns whether the full disk was met


def index_grows_until_full(case: Case) -> str:
    """The disk fills while a video is indexed; with room again, the same command goes on."""
    need = sum(path.stat().st_size for path in (case.prepared / "index").rglob("*") if path.is_file())
    disk = mounted(case, round(case.rng.uniform(0.02, 1.1) * need) // 4096 * 4096 + 8192)
    folder, log = disk / "index", case.scratch / "log"
    outcome = command("index", "add", *add_words(case.prepared, folder), log=log, limit_s=RUN_S)
    said = log.with_suffix(".err").read_text()
    if outcome == REFUSED and "full" not in said and "space" not in said:
        raise Broken(f"the disk is full, but it says {said[-300:]!r}")
    if (folder / "catalogue.sqlite").exists():
        check_sound(folder)
    mounted(case, AMPLE, again=True)
    if command("index", "add", *add_words(case.prepared, folder), log=log, limit_s=RUN_S) != NORMAL:
        raise Broken(f"with room again it does not go on: {log.with_suffix('.err').read_text()[-300:]!r}")
    check_sound(folder)
    check_rows(folder, case.prepared / "index")
    return outcome


def full_disk_can_be_asked_and_emptied(case: Case) -> str:
    """On a disk without a free byte: list, verify and find as before, and remove, which frees it."""
    disk = mounted(case, AMPLE)
    folder, log = disk / "index", case.scratch / "log"
    if command("index", "add", *add_words(case.prepared, folder), log=log, limit_s=RUN_S) != NORMAL:
        raise Broken("a sound video was not indexed")
    held = sum(path.stat().st_size for path in (folder / "videos").rglob("*.bin"))
    fill(disk, case.rng.choice((0, 0, 4 * KIB, 20 * KIB)))
    before = free(disk)
    where = ("--index", folder)
    for words in (("index", "list"), ("index", "info"), ("index", "verify")):
        if command(*words, *where, log=log) != NORMAL:
            raise Broken(f"{' '.join(words)}: {log.with_suffix('.err').read_text()[-300:]!r}")
    model = ("--weights", case.prepared / "model", "--device", "cpu", "--quiet")
    if command("find", case.prepared / "thing.png", *where, *model, log=log) != NORMAL:
        raise Broken(f"find: {log.with_suffix('.err').read_text()[-300:]!r}")
    if command("index", "remove", "walk.mp4", *where, log=log) != NORMAL:
        raise Broken(f"remove: {log.with_suffix('.err').read_text()[-300:]!r}")
    if free(disk) < before + held // 2:
        raise Broken(f"remove freed {free(disk) - before} of {held} bytes")
    check_sound(folder)
    return REFUSED


def outputs_on_a_full_disk(case: Case) -> str:
    """Each output is whole or absent, and nothing else is left."""
    need = sum((case.prepared / name).stat().st_size for name in OUTPUTS)
    disk = mounted(case, AMPLE)
    fill(disk, round(case.rng.uniform(0, 1.3) * need))
    log = case.scratch / "log"
    words = find_words(case.prepared, disk)
    outcome = command("find", *words, log=log, limit_s=RUN_S, outputs=len(OUTPUTS))
    names = {path.name for path in disk.iterdir()} - {"filler"}
    if odd := names - set(OUTPUTS):
        raise Broken(f"left on the disk: {', '.join(sorted(odd))}")
    if outcome == NORMAL and names != set(OUTPUTS):
        raise Broken(f"no error, but only {', '.join(sorted(names)) or 'nothing'} was written")
    for name in names:
        check_whole(disk / name, case.prepared / name)
    return outcome


def uploads_to_a_full_disk(case: Case) -> str:
    """The server says that there is no room, keeps nothing of it, and goes on answering."""
    disk = mounted(case, ROOMY)
    sound = case.prepared
    words = ("--index", disk / "index", "--videos", sound / "videos", "--weights", sound / "model")
    with serving(case.scratch, sound / "videos" / "walk.mp4", *words, "--device", "cpu") as server:
        warm(server)
        fill(disk, case.rng.choice((0, 16 * KIB, 200 * KIB)))
        video = (sound / "walk.mp4").read_bytes()
        for path, body in (("/api/uploads?name=a.mp4", video), ("/api/pictures", png(3, 600))):
            status, said = server.ask("POST", path, body)
            if status not in (201, 413, 507):
                raise Broken(f"{path} on a full disk: {status} {said[:200]!r}")
            with server.raw() as connection, suppress(OSError):
                part = f"{MOST_BYTES // 4:x}\r\n".encode() + case.rng.randbytes(MOST_BYTES // 4) + b"\r\n"
                connection.sendall(head("POST", path, "Transfer-Encoding: chunked\r\n") + part * 4)
            check_alive(server)
        left = [p.name for p in (disk / "index" / "uploads").rglob("*.mp4") if p.is_file()]
        if left:
            raise Broken(f"of refused uploads {', '.join(left)} is left")
        os.truncate(disk / "filler", 0)
        check_alive(server)
    check_sound(disk / "index")
    return REFUSED


def check_sound(folder: Path) -> None:
    with Index(folder, create=False) as index:
        problems = index.catalogue.problems() + [p for v in index.videos() for p in index.verify(v)]
    if problems:
        raise Broken(f"verify says: {problems[0]}")


def check_rows(folder: Path, sound: Path) -> None:
    """The rows of an index that was made in one go."""
    contents = []
    for place in (folder, sound):
        files = sorted((place / "videos").glob("*/*.bin"))
        contents.append([(path.name, path.read_bytes()) for path in files])
    if contents[0] != contents[1]:
        raise Broken("the rows differ from those of an index that was made in one go")


SCENARIOS: dict[str, Callable[[Case], str]] = {
    scenario.__name__: scenario
    for scenario in (
        index_grows_until_full,
        outputs_on_a_full_disk,
        full_disk_can_be_asked_and_emptied,
        uploads_to_a_full_disk,
    )
}

if __name__ == "__main__":
    inside(sys.argv[1:])

"""The first answer, timed as somebody new gets it: three ways from an empty folder, in a fresh environment.

    python benchmarks/first_time.py                            prints the steps and how long each took
    python benchmarks/first_time.py --out docs/first-time.md   and writes them into the page

The clone is of this checkout, the "own" videos are the bundled one and parts of it, and the photo is a moment
of it. Every command is run as it is shown. `wall` is what a person waits; `CPU` is what the processors worked
for it, which does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from lastseen import Video
from lastseen.cpu import this_cpu
from lastseen.files import whole_file
from lastseen.video.writer import VideoWriter

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "lastseen" / "assets" / "demo.mp4"
BEGIN, END = "<!-- first time: begin -->", "<!-- first time: end -->"
TORCH = "pip install -q torch --index-url https://download.pytorch.org/whl/cpu"
SETUP = (
    "git clone -q REPOSITORY lastseen",
    "python3 -m venv .venv",
    TORCH,
    "pip install -q ./lastseen",
)
BOX = "273,133,336,304"
PROGRAM = """\
from lastseen import Localizer, Query

photo = Query.from_image("desk.jpg", box=(273, 133, 336, 304))
answer = Localizer.from_pretrained().ask("walk.mp4", photo)
if answer.found:
    print(f"last seen at {answer.last.end:.1f} s, box {answer.last.last_box.xyxy}")
else:
    print("not seen")
"""
PATHS = {
    "A video and a photo": (
        f"lastseen find desk.jpg walk.mp4 --box {BOX} --picture answer.jpg",
    ),
    "A folder of videos": (
        "lastseen index videos/",
        f"lastseen find desk.jpg --box {BOX} --picture answer.jpg",
        f"lastseen find desk.jpg --box {BOX} --before 4 --in morning.mp4",
    ),
    "Python": ("python ask.py",),
    "The first again, with OpenVINO": (
        "pip install -q 'lastseen[openvino]'",
        f"lastseen find desk.jpg walk.mp4 --box {BOX} --picture answer.jpg",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    command: str
    status: int
    printed: str
    wall_s: float
    cpu_s: float


def run(command: str, folder: Path, environment: dict[str, str], real: str | None = None) -> Step:
    """One command, as in a shell; `real` is what is run for it, if it cannot be run as it is shown."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        real or command, shell=True, cwd=folder, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Step(command, done.returncode, done.stdout.strip(), time.monotonic() - began, cpu_s)


def make_own_files(folder: Path) -> None:
    """What somebody would bring: a video, a photo, a folder of videos, and the program of the Python page."""
    video = Video(DEMO)
    shutil.copy(DEMO, folder / "walk.mp4")
    Image.fromarray(video.frame_at(21.0).image).save(folder / "desk.jpg", quality=95)
    (folder / "videos").mkdir()
    for name, start_s, end_s in (("morning", 0.0, 8.0), ("evening", 28.0, 36.0)):
        with VideoWriter(folder / "videos" / f"{name}.mp4", video.width, video.height, 10.0) as writer:
            for frame in video.frames(fps=10.0, start_s=start_s, end_s=end_s):
                writer.write(frame.image)
    (folder / "ask.py").write_text(PROGRAM)


def first_time(folder: Path, torch: str) -> dict[str, list[Step]]:
    """All steps, in a folder that holds a person's files and nothing else; `torch` is what pip installs."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LASTSEEN", "PYTHON", "OMP"))
    }
    environment |= {"HOME": str(folder / "home"), "LASTSEEN_INDEX": str(folder / "home" / "index")}
    environment["PATH"] = f"{folder / '.venv' / 'bin'}:{environment['PATH']}"
    steps: dict[str, list[Step]] = {"Set-up": []}
    for command in SETUP:
        real = command.replace("REPOSITORY", str(ROOT)).replace("python3", sys.executable)
        real = f"pip install -q {torch}" if torch and command == TORCH else real
        steps["Set-up"].append(run(command, folder, environment, real))
        if steps["Set-up"][-1].status:
            sys.exit(f"{command}: status {steps['Set-up'][-1].status}\n{steps['Set-up'][-1].printed}")
    for name, commands in PATHS.items():
        steps[name] = [run(command, folder, environment) for command in commands]
    return steps


def as_markdown(steps: dict[str, list[Step]]) -> str:
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[1]
    busy = f"; other work on them (load {load:.0f})" if load > 1.5 * cores else ""
    lines = [
        f"{cores} cores of {this_cpu().name}, Python {platform.python_version()}, "
        f"{time.strftime('%d %B %Y')}{busy}.",
        "",
    ]
    lines += ["| | wall | CPU |", "|---|---|---|"]
    for name, done in steps.items():
        wall_s, cpu_s = (sum(getattr(step, field) for step in done) for field in ("wall_s", "cpu_s"))
        lines.append(f"| {name} | {wall_s:.0f} s | {cpu_s:.0f} s |")
    for name, done in steps.items():
        lines += ["", f"### {name}"]
        for step in done:
            ended = f", exit status {step.status}" if step.status else ""
            lines += ["", "```", step.command, "```"]
            if step.printed:
                lines += ["```text", step.printed, "```"]
            lines.append(f"{step.wall_s:.0f} s, {step.cpu_s:.0f} s of CPU{ended}.")
        if name == "Python":
            lines += ["", "where `ask.py` is", "", "```", PROGRAM.rstrip(), "```"]
    return "\n".join(lines)


def write_page(page: Path, text: str) -> None:
    """Replace what is between the marks of a page."""
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    with whole_file(page) as part:
        part.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="the page to write them into")
    parser.add_argument("--torch", default="", help="install this PyTorch instead: offline, a wheel at hand")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_own_files(Path(folder))
        text = as_markdown(first_time(Path(folder), arguments.torch))
    print(text)
    if arguments.out:
        write_page(arguments.out, text)


if __name__ == "__main__":
    main()

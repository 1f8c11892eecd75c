"""The docs hold what they say: links lead somewhere, commands exist, the Python page runs."""

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image
from scenes import quick_localizer, texture, thing, write_scene
from typer.main import get_command
from videos import write_video

from lastseen.cli import app
from lastseen.cli.shared import start_log
from lastseen.datasets.vq2d import load_vq2d
from lastseen.localizer import Localizer
from lastseen.video import Video

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(lastseen [^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def blocks(page: Path, language: str) -> list[str]:
    return [body for found, body in FENCE.findall(page.read_text()) if found == language]


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(prose(page)):
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


def test_source_files_that_are_named_exist():
    for page in PAGES:
        for name in re.findall(
            r"`((?:tests|runs|benchmarks|docs|lastseen|lastseen_synth)/[\w/.]+\.\w+)`", prose(page)
        ):
            assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_every_page_is_in_the_table_of_contents():
    listed = set(LINK.findall((ROOT / "docs" / "README.md").read_text()))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= listed


def commands(page: Path) -> list[tuple[list[str], bool]]:
    """(words after `lastseen`, whether it stands in a block and so must be complete)"""
    found = []
    for body in blocks(page, "") + blocks(page, "sh"):
        for line in body.replace("\\\n", " ").splitlines():
            # What a shell would run: up to a pipe, a redirection, the next command or a comment.
            for part in re.split(r"\s[|>&;]+\s?|;\s|\s#\s|\$\(|\)", line):
                words = re.sub(r"^(?:\S+=\S+ |do |then |if |while |until |! )+", "", part.strip())
                if words.startswith("lastseen "):
                    found.append((shlex.split(words)[1:], True))
    found += [(shlex.split(text)[1:], False) for text in INLINE.findall(prose(page))]
    return found


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "cli.md"], ids=lambda page: page.name)
def test_commands_and_their_options_exist(page):
    for words, is_complete in commands(page):
        command, said = get_command(app), " ".join(["lastseen", *words])
        path = []
        words = [word for word in words if word not in ("-v", "...")]
        while words and words[0] in getattr(command, "commands", {}):
            path.append(words[0])
            command, words = command.commands[words[0]], words[1:]
        if hasattr(command, "commands") and path == ["index"]:  # `lastseen index walk.mp4`
            command = command.commands["add"]
        known = {
            name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)
        }
        known |= {"--help", "-h", "--install-completion", "--show-completion"}
        given = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert path or given or not is_complete, f"{page.name}: {said}"
        assert given <= known, f"{page.name}: {said}: no {given - known}"
        if is_complete and path and not {"--help", "-h"} & given:
            command.make_context(path[-1], list(words))  # an error if an argument or a value is missing
    start_log(verbose=False)  # -v was parsed too


def test_the_picture_on_top_of_the_readme_moves_and_is_small():
    first = LINK.findall((ROOT / "README.md").read_text())[0]
    with Image.open(ROOT / first) as picture:
        assert picture.n_frames > 30 and picture.width == 640
    assert (ROOT / first).stat().st_size < 1_500_000


def test_the_annotations_that_are_shown_can_be_read(tmp_path):
    (example,) = blocks(ROOT / "docs" / "evaluation.md", "json")
    (tmp_path / "annotations.json").write_text(example)
    (question,) = load_vq2d(tmp_path / "annotations.json").questions
    assert question.truth is not None and question.truth.start == 31.2


def test_the_diagrams_are_up_to_date_and_readable_in_light_and_dark_mode(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from make_diagrams import DRAWN, PICTURES

    for name, draw in DRAWN.items():
        drawn = (PICTURES / name).read_text()
        assert drawn == draw().svg(), "run: python docs/make_diagrams.py"
        assert "prefers-color-scheme: dark" in drawn
        ElementTree.fromstring(drawn)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What the pages speak of: a video, pictures of a thing in it, and a quick localizer."""
    write_scene(tmp_path / "walk.mp4", [None] * 2 + [(100, 50)] * 4 + [None] * 2)
    Image.fromarray(thing()).save(tmp_path / "keys.jpg", quality=95)
    for name in ("keys1.jpg", "keys2.jpg"):
        Image.fromarray(thing()).save(tmp_path / name, quality=90)
    photo = Image.fromarray(texture(5, 640, 360, 40) // 2)
    photo.paste(Image.fromarray(thing()).resize((63, 171)), (273, 133))  # where the pages draw the box
    photo.save(tmp_path / "desk.jpg", quality=90)
    localizer = quick_localizer()
    monkeypatch.setattr(Localizer, "from_pretrained", lambda *_, **__: localizer)
    monkeypatch.chdir(tmp_path)
    return tmp_path


PROGRAMS = blocks(ROOT / "docs" / "programs.md", "python")
DEMO_FROM_S, DEMO_TO_S = 29.0, 35.0  # the keys are last in view from 31.2 to 33.6 s


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The end of the bundled video, and pictures of the thing in it."""
    root, video = tmp_path_factory.mktemp("programs"), Video(ROOT / "lastseen" / "assets" / "demo.mp4")
    Image.fromarray(video.frame_at(21).image).save(root / "desk.jpg", quality=95)
    shutil.copy(ROOT / "lastseen" / "assets" / "demo_query.jpg", root / "keys.jpg")
    frames = [frame.image for frame in video.frames(5, start_s=DEMO_FROM_S, end_s=DEMO_TO_S)]
    write_video(root / "walk.mp4", frames, fps=5)
    write_video(root / "monday.mp4", frames[:5], fps=5)
    write_video(root / "tuesday.mp4", frames[9:], fps=5)
    return root


@pytest.mark.usefixtures("one_thread", "remembered")
@pytest.mark.parametrize("program", PROGRAMS, ids=range(1, len(PROGRAMS) + 1))
def test_programs_run_and_are_short(demo, monkeypatch, capsys, program):
    localizer = quick_localizer()

    def from_pretrained(threshold=None, **_):
        rule = localizer.rule
        if threshold is not None:
            rule = replace(rule, confidence=replace(rule.confidence, threshold=threshold))
        return localizer.with_rule(rule)

    monkeypatch.setattr(Localizer, "from_pretrained", from_pretrained)
    monkeypatch.chdir(demo)
    before = {path.name for path in demo.iterdir()}
    exec(compile(program, "programs.md", "exec"), {})
    said, written = capsys.readouterr().out, {path.name for path in demo.iterdir()} - before
    assert said or any(name.startswith("frame-") for name in written)
    assert "last seen from 2." in said or "last seen from" not in said
    named = set(re.findall(r'save\w*\("([\w.]+)"', program))
    assert named <= written, "each program does all that it says"
    assert len([line for line in program.splitlines() if line and "import " not in line]) <= 11


@pytest.mark.usefixtures("one_thread", "remembered")
@pytest.mark.parametrize("name", ["docs/python.md", "docs/extending.md", "README.md"])
def test_python_blocks_run(folder, name, capsys):
    everything = {}
    parts = blocks(ROOT / name, "python")
    assert parts
    for part in parts:
        exec(compile(part, name, "exec"), everything)
    assert capsys.readouterr().out
    if name == "docs/python.md":
        assert {"answer.jpg", "answer.mp4", "answer.png", "answer.html"} <= {p.name for p in folder.iterdir()}

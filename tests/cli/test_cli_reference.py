"""Comfort of the command line: its reference, completion, environment variables, -v."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from lastseen.cli import app
from lastseen.doctor import SETTINGS

ROOT = Path(__file__).parents[2]


def test_the_reference_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from make_cli_reference import FILE, reference

    assert FILE.read_text() == reference(), "run: python docs/make_cli_reference.py"


def test_the_reference_has_every_command_and_every_variable():
    text = (ROOT / "docs" / "cli.md").read_text()
    commands = re.findall(r"^## lastseen (.+)$", text, re.MULTILINE)
    assert {"find", "evaluate", "export", "doctor", "index add", "index verify"} <= set(commands)
    assert len(commands) == len(set(commands))
    of_options = set(re.findall(r"\[env var:\s+(LASTSEEN_\w+)", text))
    assert of_options == set(SETTINGS) - {"LASTSEEN_MODELS"}  # this one is no option
    assert "LASTSEEN_MODELS" in text


def groups(command, context):
    """(command, its context) of every group of commands."""
    if hasattr(command, "commands"):
        yield command, context
        for name, action in command.commands.items():
            yield from groups(action, action.context_class(action, info_name=name, parent=context))


def test_no_summary_is_cut_off_at_80_columns():
    app_ = get_command(app)
    shown = 0
    for group, context in groups(app_, app_.make_context("lastseen", ["x"], resilient_parsing=True)):
        lines = group.get_help(context).split("Commands:\n")[1].split("\n\n")[0].splitlines()
        assert [line.split()[0] for line in lines] == list(group.commands)  # each on one line
        assert not [line for line in lines if line.endswith("...") or len(line) > 80]
        shown += len(lines)
    assert shown > 15


def test_arguments_are_called_by_their_names_and_not_by_python_types():
    text = (ROOT / "docs" / "cli.md").read_text()
    assert "Usage: lastseen find [OPTIONS] PICTURE... [VIDEO]\n" in text
    usages = re.findall(r"^Usage: .+$", text, re.MULTILINE)
    assert len(usages) > 15 and not [line for line in usages if re.search(r"[{}]|\[\[|\]\]|\.\.\.\]", line)]
    assert not re.findall(r"<(?:list\[)?(?:str|path|Path|int|float)\]?>", text)


def test_the_help_of_index_shows_what_add_takes(run):
    add, group = run("index", "add", "--help")[1], run("index", "--help")[1]
    options = set(re.findall(r"^  .*?(--[a-z-]+)", add, re.MULTILINE))
    assert {"--keep", "--follow", "--recorded"} <= options
    assert options == set(re.findall(r"^  .*?(--[a-z-]+)", group, re.MULTILINE))
    assert "VIDEO..." in group.splitlines()[0]


def complete(*words: str) -> list[str]:
    """What bash would offer for the last word."""
    code = (
        "import sys\n"
        "from lastseen.cli import app\n"
        "try: app(prog_name='lastseen')\n"
        "finally: assert not {'torch', 'av', 'numpy'} & set(sys.modules)\n"
    )
    environment = {
        **os.environ,
        "_LASTSEEN_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["lastseen", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ex"], {"export"}),
        (["find", "--pap"], {"--paper"}),
        (["find", "--device", "cu"], {"cuda", "cuda:0", "cuda:1"}),
        (["export", "a.json", "b", "--to", "co"], {"coco", "coco-results"}),
    ],
)
def test_the_shell_completes(words, offered):
    assert set(complete(*words)) == offered


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing"], "no such command 'nothing'; see lastseen --help"),
        (["find", "--boxes", "1"], "no such option: --boxes"),
        (["find", "a.jpg", "b.mp4", "--threshold", "2"], "invalid value for '--threshold'"),
        (["index", "add"], "missing argument 'VIDEO...'; see lastseen index add --help"),
        (["validate", "--annotations", "a.json"], "missing option '--predictions'"),
    ],
)
def test_a_misspelt_command_is_one_line(run, arguments, says):
    status, out, err = run(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"lastseen: {says}")


def test_our_own_mistakes_are_one_line_and_not_taken_for_not_found(run, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("first line\nsecond")

    monkeypatch.setattr("lastseen.doctor.examine", broken)
    status, out, err = run("doctor")
    assert (status, out) == (2, "")
    assert err.startswith("lastseen: internal error") and "RuntimeError: first line)" in err
    assert run("-v", "doctor")[2].startswith("Traceback")


def test_ctrl_c_is_one_line_and_status_130(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lastseen.doctor.examine", interrupted)
    assert run("doctor") == (130, "", "lastseen: interrupted\n")


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m lastseen find --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_environment_variables_stand_in_for_options(run, tmp_path, monkeypatch):
    (tmp_path / "a.jpg").write_bytes(b"")
    demo = ROOT / "lastseen" / "assets"
    files = (demo / "demo_query.jpg", demo / "demo.mp4")
    monkeypatch.setenv("LASTSEEN_WEIGHTS", str(tmp_path / "nowhere"))
    assert "nowhere is not a model" in run("find", *files, "-q")[2]
    monkeypatch.setenv("LASTSEEN_DEVICE", "toaster")
    assert "device toaster cannot be used" in run("find", *files, "-q")[2]
    assert "device oven cannot be used" in run("find", *files, "-q", "--device", "oven")[2]


def test_verbose_tells_where_an_error_comes_from(run, tmp_path):
    missing = tmp_path / "missing.json"
    status, _, err = run("-v", "export", missing, "-")
    assert status == 2
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].startswith("lastseen: ")
    assert run("export", missing, "-")[2].count("\n") == 1


@pytest.mark.parametrize("quiet", [True, False])
def test_verbose_tells_how_long_the_work_took(capsys, quiet):
    from lastseen.cli.bar import progress_bar
    from lastseen.cli.shared import start_log
    from lastseen.progress import Progress

    start_log(verbose=True)
    with progress_bar(None, quiet) as show:
        show(Progress("searching", 1, 2))
        show(Progress("searching", 2, 2))
    assert re.search(r"searching: 2 frames in \d+\.\d s, [\d.]+ a second", capsys.readouterr().err)
    start_log(verbose=False)
    with progress_bar(None, True) as show:
        show(Progress("searching", 2, 2))
    assert capsys.readouterr().err == ""

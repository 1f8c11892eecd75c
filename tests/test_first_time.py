"""The timed first answer: its commands exist, its steps are told as they happened."""

import os
import shlex

from typer.main import get_command

from benchmarks.first_time import BEGIN, END, PATHS, PROGRAM, Step, as_markdown, run, write_page
from lastseen.cli import app


def test_the_commands_exist_and_the_program_is_python():
    for commands in PATHS.values():
        for command in commands:
            name, *words = shlex.split(command)
            if name == "lastseen":
                found = get_command(app).commands[words[0]]
                if words[0] == "index":
                    found, words = found.commands["add"], ["add", *words[1:]]
                found.make_context(words[0], words[1:])
    compile(PROGRAM, "ask.py", "exec")


def test_a_step_is_told_with_what_it_printed_and_how_it_ended(tmp_path):
    step = run("COMMAND", tmp_path, dict(os.environ), "echo first; echo second >&2; exit 3")
    assert (step.command, step.status, step.printed) == ("COMMAND", 3, "first\nsecond")
    assert step.wall_s > 0
    busy = run("work", tmp_path, dict(os.environ), "python3 -c 'sum(range(10**7))'")
    assert busy.cpu_s > 0.05


def test_the_page_keeps_what_is_around_the_steps(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\nafter\n")
    steps = {
        "Set-up": [Step("install", 0, "", 61.0, 20.0)],
        "Python": [Step("python ask.py", 1, "not seen", 2, 3)],
    }
    write_page(page, as_markdown(steps))
    text = page.read_text()
    assert text.startswith("# Title") and text.endswith(f"{END}\nafter\n") and "old" not in text
    assert "| Set-up | 61 s | 20 s |" in text
    assert "exit status 1" in text and PROGRAM.rstrip() in text

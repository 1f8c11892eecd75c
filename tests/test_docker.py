"""The Dockerfile, as far as it can be checked without Docker: files exist, commands and options do, too."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.main import get_command
from web import served, tiny

from lastseen.cli import app
from lastseen.web.media import Settings

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def instructions():
    """(name, arguments) of each instruction, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def arguments(instructions, name: str) -> list[str]:
    return [rest for found, rest in instructions if found == name]


def test_everything_that_is_copied_exists_and_is_sent_to_docker(instructions):
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    stages = {rest.split(" AS ")[1] for rest in arguments(instructions, "FROM")}
    copied = set()
    for rest in arguments(instructions, "COPY"):
        words = rest.split()
        if words[0].startswith("--from="):
            assert words[0].removeprefix("--from=") in stages
            continue
        copied |= set(words[:-1])
    assert copied == set(kept)
    for name in copied:
        assert (ROOT / name).exists()
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {metadata["project"]["readme"], *metadata["project"]["license-files"], "pyproject.toml"}
    assert needed | set(metadata["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == copied


def test_stages_build_on_earlier_ones_and_end_without_root(instructions):
    known, user = set(), {}
    for name, rest in instructions:
        if name == "FROM":
            base, stage = rest.split(" AS ")
            assert base in known or re.fullmatch(r"python:3\.1\d-slim", base)
            known.add(stage)
            user[stage] = user.get(base)
        elif name == "USER":
            user[stage] = rest
    assert user["cpu"] == user["cuda"] == "lastseen"
    assert stage == "cpu"  # what `docker build .` makes
    assert "useradd" in " ".join(arguments(instructions, "RUN"))


def test_the_extras_exist(instructions):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"whl\)\[([\w,]+)\]", " ".join(arguments(instructions, "RUN")))
    assert len(named) == 2
    for names in named:
        assert {"web"} <= set(names.split(",")) <= set(extras)


def test_what_it_starts_is_a_command_with_a_token(instructions):
    (entry,), (default,) = arguments(instructions, "ENTRYPOINT"), arguments(instructions, "CMD")
    assert json.loads(entry) == ["lastseen"]
    name, *words = json.loads(default)
    serve = get_command(app).commands[name]
    given = serve.make_context(name, words).params
    assert given["host"] == "0.0.0.0" and not given["no_token"]
    assert str(given["port"]) in arguments(instructions, "EXPOSE")
    folders = " ".join(arguments(instructions, "RUN"))
    assert all(f" {folder}" in folders for folder in map(str, given["folders"]))
    (variables,) = arguments(instructions, "ENV")
    settings = dict(word.split("=", 1) for word in shlex.split(variables))
    assert settings["LASTSEEN_INDEX"] in arguments(instructions, "VOLUME")


@pytest.mark.usefixtures("one_thread")
def test_the_health_check_tells_a_server_that_answers_from_none(instructions, tmp_path):
    (check,) = arguments(instructions, "HEALTHCHECK")
    python, *words = json.loads(check.split(" CMD ")[1])
    assert python == "python"

    def healthy(port: int) -> bool:
        code = [word.replace("8765", str(port)) for word in words]
        return subprocess.run([sys.executable, *code], capture_output=True, check=False).returncode == 0

    with served(Settings(index=tmp_path / "index", host="0.0.0.0", token="a" * 20), tiny()) as address:
        port = urlsplit(address).port
        assert healthy(port)
    assert not healthy(port)


def test_nothing_else_is_sent_to_docker():
    first, *rest = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in "#"]
    assert first == "*"
    assert any(fnmatch("lastseen/__pycache__", line) for line in rest)

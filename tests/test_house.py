"""The house rules that a program can check."""

import ast
import subprocess
import sys
from pathlib import Path

import lastseen

PACKAGE = Path(lastseen.__file__).parent
ROWS = [
    ["errors"],
    ["box", "files", "clips", "picture", "plain", "progress", "tensors", "cpu"],
    ["video", "track", "model", "masks"],
    ["query", "sighting", "engine"],
    ["answer", "refine"],
    ["rule", "stored_config", "formats", "access", "words"],
    ["weights", "procedure", "render", "datasets"],
    ["runner", "seen_so_far", "baselines"],
    ["search"],
    ["localizer"],
    ["index", "evaluate", "doctor"],
    ["train"],
    ["web", "cluster"],
    ["cli"],
]
LEVEL = {name: level for level, row in enumerate(ROWS) for name in row}
# The same inside the larger rooms.
INNER_ROWS = {
    "index": [
        ["lock", "rows", "compact", "entry"],
        ["database", "identity", "soundness", "questions", "kept_answer", "small"],
        ["catalogue"],
        ["verify"],
        ["folder"],
        ["recorder", "originals", "answers"],
        ["fine"],
        ["repair"],
        ["record", "part"],
        ["live"],
        ["search"],
        ["index"],
    ],
    "baselines": [
        ["boxes", "roi_align", "pyramid", "peaks", "nanotrack_network", "published"],
        ["proposals", "tracking"],
        ["detector", "particle_filter", "nanotrack"],
        ["siamrcnn", "cocoformer", "stark"],
        ["nfm", "procedure"],
        ["stored"],
    ],
    "cluster": [
        ["storage", "machines"],
        ["remote", "overall"],
        ["shards"],
        ["writing", "question"],
        ["worker"],
        ["indexing", "asking", "here"],
        ["cluster"],
    ],
    "search": [["ranking"], ["source"], ["outline"], ["case", "expected"], ["part"], ["run"]],
    "refine": [["window"], ["step"], ["appearance", "zoom", "mask", "plan"], ["verify"], ["extend"]],
    "train": [
        ["batch", "augment", "fields", "log", "optimiser", "checkpoint", "distributed", "gallery", "harvest"],
        ["loss", "mining", "dense", "pairs", "toy", "files_data", "compare_start"],
        ["prior", "soft_coverage", "rival_data"],
        ["backbone_stage", "feature_store", "probe", "rival_losses"],
        ["recipes", "run_backbone_stage", "rounds", "walk_questions", "rivals"],
        ["initialise"],
        ["training"],
        ["loop"],
    ],
}
# `Recipe.run` imports these when it is called, so that a recipe's config needs neither.
RUN_LATER = {("recipes", "loop"), ("recipes", "run_backbone_stage")}
# library -> the rooms that may import it
ONLY_IN = {
    "av": ["video", "doctor"],
    "PIL": ["picture", "render"],
    "typer": ["cli"],
    "rich": ["cli"],
    "fastapi": ["web"],
    "starlette": ["web"],
    "pydantic": ["web"],
    "uvicorn": ["web"],
    "openvino": ["engine"],
    "triton": ["engine"],
    "ray": ["cluster"],
    "fsspec": ["cluster"],
}


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if room(path) in LEVEL]


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Modules, also those behind `from lastseen import X` and relative imports."""
    found = set()
    package = ["lastseen", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names = {alias.name for alias in node.names}
            if module == "lastseen":
                names = {lastseen._HOMES.get(name, name) for name in names}
            found |= {module} | {f"{module}.{name}" for name in names}
    return found


def test_imports_are_seen_in_every_form(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    (tmp_path / "index").mkdir()
    module = tmp_path / "index" / "module.py"
    for line, means in (
        ("import lastseen.web.jobs", "lastseen.web.jobs"),
        ("from lastseen.web import jobs", "lastseen.web.jobs"),
        ("from lastseen import web", "lastseen.web"),
        ("from lastseen import Localizer", "lastseen.localizer"),
        ("from . import rows", "lastseen.index.rows"),
        ("from ..web import jobs", "lastseen.web.jobs"),
    ):
        module.write_text(line)
        assert means in imports(module), line


def test_a_module_imports_only_from_rows_above_its_own():
    for path in modules():
        here = room(path)
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "lastseen" and len(parts) > 1 and parts[1] in LEVEL and parts[1] != here:
                assert LEVEL[parts[1]] < LEVEL[here], f"{here} imports {name}"


def test_inside_a_room_too():
    for inner, rows in INNER_ROWS.items():
        level = {name: number for number, row in enumerate(rows) for name in row}
        paths = [path for path in sorted((PACKAGE / inner).glob("*.py")) if path.stem != "__init__"]
        assert {path.stem for path in paths} == set(level)
        for path in paths:
            for name in imports(path):
                parts = name.split(".")
                other = parts[2] if parts[:2] == ["lastseen", inner] and len(parts) > 2 else None
                if other in level and (path.stem, other) not in RUN_LATER:
                    assert level[other] < level[path.stem], f"{inner}/{path.name} imports {name}"


def test_a_library_is_imported_in_its_own_room_only():
    for path in modules():
        for name in imports(path):
            library = name.split(".")[0]
            if library in ONLY_IN:
                assert room(path) in ONLY_IN[library], f"{room(path)} imports {name}"


def test_every_room_is_on_the_plan():
    rooms = {room(path) for path in PACKAGE.rglob("*.py")} - {"__init__", "__main__"}
    assert rooms <= set(LEVEL)


def test_the_public_names_are_a_list_and_all_are_there():
    assert lastseen.__all__ == [
        "Answer",
        "Box",
        "FramePredictions",
        "Index",
        "LastSeenError",
        "Localizer",
        "Query",
        "ResponseTrack",
        "Rule",
        "VQLoC",
        "Video",
    ]
    for name in lastseen.__all__:
        assert getattr(lastseen, name).__name__ == name


def test_importing_does_nothing_and_only_model_and_its_users_need_torch():
    """Scoring and checking files is for machines without a deep-learning stack, and quick."""
    code = (
        "import sys\n"
        "import lastseen.evaluate.challenge, lastseen.datasets.egotracks, lastseen.render, lastseen.query\n"
        "import lastseen.formats.arrays, lastseen.doctor\n"
        "assert 'torch' not in sys.modules\n"
        "for name in [name for name in sys.modules if name.split('.')[0] in ('lastseen', 'av')]:\n"
        "    del sys.modules[name]\n"
        "import torch, logging\n"
        "flags = (torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype())\n"
        "from lastseen import *\n"
        "assert flags == (torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype())\n"
        "assert not logging.getLogger().handlers\n"
        "assert 'av' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

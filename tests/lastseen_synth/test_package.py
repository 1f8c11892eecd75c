"""The package's rules that a program can check: import order, and what it imports from elsewhere."""

import ast
from collections.abc import Iterator
from pathlib import Path

import lastseen
import lastseen_synth

SYNTH, PRODUCT = Path(lastseen_synth.__file__).parent, Path(lastseen.__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "synthetic-data.md"
# A module imports only from rows above its own; the modules of `procedural` count as one.
ROWS = [
    ["geometry", "line_of_sight", "gaze", "paths", "annotation"],
    ["raster", "lens", "itinerary"],
    ["texture", "shadow", "visibility", "shutter", "walk"],
    ["meshes", "sensor", "timeline", "backdrop"],
    ["shade", "shapes", "simplify", "cutouts", "camera"],
    ["assets", "capsules"],
    ["supports", "scans", "floor_plan", "held_object", "object_pool", "parallel", "procedural"],
    ["packs", "shell", "support_grid", "photo_scene", "plain_things"],
    ["library", "furniture", "lighting", "clutter", "compositing", "fresh_covers"],
    ["room_types", "room_details", "photo_frames"],
    ["rooms", "photo_walks"],
    ["episode", "query_pictures"],
    ["annotated_walk", "dataset_writer", "preview"],
]
LEVEL = {name: level for level, row in enumerate(ROWS) for name in row}
FROM_PRODUCT = {"box", "errors", "files", "video"}
# library -> the modules that may import it; frames of a video go through lastseen.video
ONLY_IN = {
    "PIL": {"annotated_walk", "dataset_writer", "packs", "preview", "procedural", "scans", "sensor"},
    "av": set(),
}


def modules(package: Path) -> Iterator[tuple[str, Path]]:
    """Every file and the name of the module (or sub-package) of `package` that it belongs to."""
    for path in sorted(package.rglob("*.py")):
        yield path.relative_to(package).parts[0].removesuffix(".py"), path


def imports(path: Path) -> set[str]:
    """Dotted names, also those inside functions; `from a import b` counts as a and as a.b."""
    return imports_in(path.read_text())


def imports_in(code: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, "relative imports would escape these rules"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def parts_of(package: str, names: set[str], known: set[str]) -> set[str]:
    """The modules of `package` among these names; of `from package import x`, only an x that is one."""
    dotted = (name.split(".") for name in names)
    return {parts[1] for parts in dotted if parts[0] == package and len(parts) > 1 and parts[1] in known}


def test_every_way_to_import_a_module_is_seen():
    known = {"raster", "shade"}
    for code in (
        "import lastseen_synth.raster",
        "import lastseen_synth.raster as r",
        "from lastseen_synth import raster",
        "from lastseen_synth import raster as r",
        "from lastseen_synth.raster import depth_test",
        "def f():\n    from lastseen_synth import raster",
    ):
        assert parts_of("lastseen_synth", imports_in(code), known) == {"raster"}


def test_every_module_is_in_a_row():
    assert {name for name, _ in modules(SYNTH)} - {"__init__"} == set(LEVEL)


def test_a_module_imports_only_from_rows_above_its_own():
    for here, path in modules(SYNTH):
        for other in parts_of("lastseen_synth", imports(path), set(LEVEL)) - {here}:
            assert LEVEL[other] < LEVEL[here], f"{here} imports {other}"


def test_of_the_product_only_boxes_errors_files_and_video_are_imported():
    known = {name for name, _ in modules(PRODUCT)}
    for here, path in modules(SYNTH):
        names = imports(path)
        assert parts_of("lastseen", names, known) <= FROM_PRODUCT, here
        public = {name for name in names if name.startswith("lastseen.") and name.split(".")[1] not in known}
        assert not public, f"{here} imports {public} from the package lastseen itself"


def test_only_training_and_the_command_line_import_this_package():
    for here, path in modules(PRODUCT):
        if any(name.split(".")[0] == "lastseen_synth" for name in imports(path)):
            assert here in ("train", "cli"), f"{here} imports lastseen_synth"


def test_images_and_videos_are_read_and_written_where_intended():
    for here, path in modules(SYNTH):
        for name in {name.split(".")[0] for name in imports(path)} & set(ONLY_IN):
            assert here in ONLY_IN[name], f"{here} imports {name}"


def test_the_documented_rows_are_these():
    lines = [line for line in DOCS.read_text().splitlines() if line.startswith("| ") and "|" in line[2:]]
    start = next(n for n, line in enumerate(lines) if line.startswith("| row"))
    for number, row in enumerate(ROWS, 1):
        cells = [cell.strip() for cell in lines[start + number].strip("|").split("|")]
        assert (cells[0], cells[1].replace("`", "").split()) == (str(number), row)

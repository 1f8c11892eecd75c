"""How large the code is: python benchmarks/code_size.py CHECKOUT [CHECKOUT ...]

Files, lines and longest functions of the packages, lines and number of tests, fields of the configs that
decide about an answer, and numbers that decide about it but are constants of modules.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

ANSWERING = ("ends", "second_look", "refine", "track", "sighting", "rule", "procedure")
CONFIGS = (
    "VQLoCConfig",
    "SimilarityConfig",
    "TrackRule",
    "Extraction",
    "Confidence",
    "Zoom",
    "Verify",
    "Extend",
)


def trees(root: Path, *folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def lines(root: Path, *folders: str) -> tuple[int, int]:
    paths = [path for path, _ in trees(root, *folders)]
    return len(paths), sum(len(path.read_text().splitlines()) for path in paths)


def functions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.end_lineno - node.lineno + 1, node.name


def fields(node: ast.ClassDef) -> int:
    return sum(
        isinstance(part, ast.AnnAssign) and "ClassVar" not in ast.unparse(part.annotation)
        for part in node.body
    )


def report(root: Path) -> dict[str, str]:
    product, world = lines(root, "lastseen"), lines(root, "lastseen_synth")
    synth = lines(root, "lastseen/synth")
    longest = sorted(
        (length, f"{name} in {path.relative_to(root)}")
        for path, tree in trees(root, "lastseen", "lastseen_synth")
        for length, name in functions(tree)
    )
    configs = {
        node.name: fields(node)
        for _, tree in trees(root, "lastseen")
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name in CONFIGS
    }
    constants = [
        target.id
        for path, tree in trees(root, "lastseen")
        if path.relative_to(root / "lastseen").parts[0].removesuffix(".py") in ANSWERING
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int | float)
    ]
    tests = [
        name for _, tree in trees(root, "tests") for _, name in functions(tree) if name.startswith("test_")
    ]
    over = sum(len(path.read_text().splitlines()) > 400 for path, _ in trees(root, "lastseen", "tests"))
    return {
        "product: files, lines": f"{product[0] - synth[0]}, {product[1] - synth[1]:,}",
        "synthetic world: files, lines": f"{world[0] + synth[0]}, {world[1] + synth[1]:,}",
        "tests: functions, lines": f"{len(tests)}, {lines(root, 'tests')[1]:,}",
        "config fields": ", ".join(f"{name} {count}" for name, count in configs.items()),
        "numbers that decide an answer outside a config": f"{len(constants)}",
        "longest functions": "; ".join(f"{length}: {name}" for length, name in longest[:-4:-1]),
        "files over 400 lines": f"{over}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", type=Path, nargs="+")
    reports = [report(root.resolve()) for root in parser.parse_args().checkouts]
    for name in reports[0]:
        print(f"| {name} | {' | '.join(one[name] for one in reports)} |")


if __name__ == "__main__":
    main()

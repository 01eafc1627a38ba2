"""Imports go one way: a part of the package may use those before it, and only one uses Spark."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock

ORDER = """
    errors hidden kafka_names option_values config config_page observability serdes topology
    processors stores changelog coordination instance local queries pipeline console driver
    application public testing examples cli
""".split()  # noqa: SIM905 - one name a line would hide that it is a sequence
ROOT = Path(penstock.__file__).parent
SPARK_ONLY_IN = "pipeline"


def files() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if part != "__init__":
            yield part, path


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Every module name that a file imports, wherever in the file, relative ones made absolute."""
    package = ("penstock", *path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "penstock":
                for alias in node.names:
                    yield node.lineno, f"penstock.{alias.name}"
            else:
                yield node.lineno, module


def test_every_part_has_a_place_in_the_order() -> None:
    assert {part for part, _ in files()} <= set(ORDER)


def test_no_part_imports_a_later_one() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for part, path in files()
        for line, name in imported(path)
        if name.startswith("penstock.")
        and (target := name.split(".")[1]) in ORDER
        and ORDER.index(target) > ORDER.index(part)
    ]
    assert wrong == []


def test_the_package_root_is_imported_by_those_alone_who_use_it_as_users_do() -> None:
    # `penstock` itself imports nearly everything: from inside, that would be a circle.
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for part, path in files()
        for line, name in imported(path)
        if part not in ("cli", "examples", "testing")
        and (
            name == "penstock" or (name.startswith("penstock.") and name.split(".")[1] not in ORDER)
        )
    ]
    assert wrong == []


def test_spark_is_imported_in_one_folder() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for part, path in files()
        for line, name in imported(path)
        if name.split(".")[0] in ("pyspark", "py4j") and part != SPARK_ONLY_IN
    ]
    assert wrong == []

"""What docs/style.md asks for and a program can check."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

SOURCE = Path(penstock.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
CLASS_LINES_MAX = 400
JUNK_DRAWERS = {"utils", "helpers", "common", "misc"}
BANNED = {"pickle", "marshal", "shelve", "yaml"}


def definitions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node


def lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_grows_too_large(path: Path) -> None:
    assert path.read_text().count("\n") <= FILE_LINES_MAX
    for node in definitions(path):
        limit = CLASS_LINES_MAX if isinstance(node, ast.ClassDef) else FUNCTION_LINES_MAX
        assert lines(node) <= limit, f"{node.name} has {lines(node)} lines; docs/style.md says why"


def test_there_are_no_junk_drawers() -> None:
    assert not [path for path in FILES if JUNK_DRAWERS & {path.stem, path.parent.name}]


def test_nothing_from_a_socket_topic_or_disk_can_become_code() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert not BANNED & {alias.name.split(".")[0] for alias in node.names}, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec"}, path


def test_every_module_and_public_name_says_what_it_promises() -> None:
    for path in FILES:
        tree = ast.parse(path.read_text())
        if path.read_text().strip():
            assert ast.get_docstring(tree), path
        for node in tree.body:
            public = isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_"
            if public and path.parent.name != "cli":
                assert isinstance(node, ast.FunctionDef | ast.ClassDef)
                assert ast.get_docstring(node), f"{path}: {node.name}"


def test_the_root_loads_nothing_until_one_of_its_names_is_used() -> None:
    program = "import sys, penstock; print([m for m in sys.modules if m.startswith('penstock.')])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stderr
    with pytest.raises(AttributeError):
        penstock.nothing_of_that_name  # noqa: B018
    assert set(penstock.__all__) < set(dir(penstock))


def test_the_root_exports_what_it_says_sorted() -> None:
    assert penstock.__all__ == sorted(penstock.__all__)
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None

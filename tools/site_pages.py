"""Pages of the site that are made of the code: MkDocs calls the functions at the end.

A page says `<!-- made: NAME -->` where something goes that is written down elsewhere, once. What
stands between `<!-- file only: start -->` and `<!-- file only: end -->` is for those who read the
page as a file, where that is missing; the site leaves it out.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KAFKA_STREAMS = ROOT / "docs" / "data" / "kafka-streams.toml"
API = (ROOT / "tests" / "unit" / "data" / "kafka-streams-api.txt").read_text().splitlines()
_ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//|<link\b[^>]*\bhref="(?:https?:)?//"""
    # The theme would fetch the library that draws these.
    r"""|class="mermaid\"""",
)
RUNBOOK = ROOT / "docs" / "data" / "runbook.toml"
_MARK = re.compile(r"^<!-- made: (\w+) -->$", re.MULTILINE)
_FILE_ONLY = re.compile(
    r"^<!-- file only: start -->$.*?^<!-- file only: end -->\n", re.MULTILINE | re.DOTALL
)


def command_line() -> str:
    """Every command with its arguments, options and example, out of the parser."""
    from typer.main import get_command

    from penstock.cli import COMMANDS, _program

    parts: list[str] = []
    for name in COMMANDS:
        top: Any = get_command(_program([name]))
        parts += _command_lines(top.commands[name], f"penstock {name}", level=2)
    return "\n".join(parts)


def _command_lines(command: Any, words: str, *, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{words}`\n"
    yield f"{(command.help or '').strip()}\n"
    inner = getattr(command, "commands", {})
    # `dev` is a command itself, and has others.
    if not inner or command.invoke_without_command:
        yield f"```\n{(command.epilog or '').removeprefix('Example: ')}\n```\n"
        yield from _parameter_lines(command)
    for name, each in inner.items():
        yield from _command_lines(each, f"{words} {name}", level=level + 1)


def _parameter_lines(command: Any) -> Iterator[str]:
    if not command.params:
        return
    yield "| argument, option | default | meaning |\n| --- | --- | --- |"
    for each in command.params:
        is_option = each.param_type_name == "option"
        argument = each.metavar or each.name.upper()
        names = ", ".join(f"`{name}`" for name in (each.opts if is_option else [argument]))
        default = "required" if each.required else _shown_default(each.default)
        meaning = (getattr(each, "help", None) or "").replace("|", "\\|")
        yield f"| {names} | {default} | {meaning} |"
    yield ""


def _shown_default(value: object) -> str:
    return "-" if value in (None, "", False, ()) else f"`{value}`"


def errors() -> str:
    """The runbook: each error with its code for programs, when it comes, and what to do."""
    from penstock.errors import PenstockError

    entries = tomllib.loads(RUNBOOK.read_text())
    lines: list[str] = []
    for kind in error_classes(PenstockError):
        name = kind.__name__
        told = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
        entry = entries[name]
        lines += [f"## {name}", "", f"`{kind('').code}`. {told}", ""]
        lines += [f"**When:** {entry['when']}.", "", f"**Do:** {entry['do']}.", ""]
    return "\n".join(lines)


def error_classes(top: type[Any]) -> list[type[Any]]:
    """An error and all below it, in the order in which they are written."""
    found = [top]
    for each in top.__subclasses__():
        if each.__module__ == top.__module__:
            found += error_classes(each)
    return found


def kafka_streams() -> str:
    """Kafka Streams' public names, and what stands for each, out of the one table."""
    lines: list[str] = []
    for group in table_groups():
        lines += [f"## {group['title']}", "", group.get("text", "").strip(), ""]
        lines += ["| Kafka Streams | Penstock | |", "| --- | --- | --- |"]
        lines += [_row(*row) for row in covered(group["rows"])]
        lines.append("")
    return "\n".join(lines)


def table_groups() -> list[dict[str, Any]]:
    """The one table, as it is written."""
    groups: list[dict[str, Any]] = tomllib.loads(KAFKA_STREAMS.read_text())["group"]
    return groups


def covered(rows: list[list[str]]) -> Iterator[tuple[list[str], str, str]]:
    """Each row with the names that it covers: `Class#*` stands for all that have none."""
    named = {name for row in rows for name in _plain_names(row[0])}
    for java, here, note in rows:
        if java.endswith("#*"):
            own = java.removesuffix("#*")
            rest = [each for each in API if each.split("#")[0] == own and each not in named]
            yield rest or [own], here, note
        else:
            yield _plain_names(java), here, note


def _plain_names(java: str) -> list[str]:
    own, _, methods = java.partition("#")
    return [f"{own}#{method}" for method in methods.split(" ")] if methods else [own]


def _row(names: list[str], here: str, note: str) -> str:
    own = names[0].split("#")[0].removeprefix("config ")
    methods = ", ".join(f"`{name.split('#')[1]}`" for name in names if "#" in name)
    java = f"`{own}`{' ' if methods else ''}{methods}"
    counterparts = ", ".join(f"`{each}`" for each in here.split(", ") if each) or "-"
    return f"| {java} | {counterparts} | {note} |"


PAGES: dict[str, Callable[[], str]] = {
    "command_line": command_line,
    "errors": errors,
    "kafka_streams": kafka_streams,
}


def on_page_markdown(markdown: str, **_: object) -> str:
    """Put in what the page asks for; MkDocs calls this for each page."""
    return _MARK.sub(lambda found: PAGES[found[1]](), _FILE_ONLY.sub("", markdown))


def on_post_page(output: str, page: Any, **_: object) -> str:
    """Refuse a page that fetches something from elsewhere; MkDocs calls this for each page."""
    if _ELSEWHERE.search(output):
        raise ValueError(f"{page.file.src_uri} fetches something from elsewhere")
    return output

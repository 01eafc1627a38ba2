"""From the text of an expression to its tree: what is not surely the same everywhere is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from penstock.errors import TopologyError
from penstock.topology.expressions.tree import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    INT,
    KNOWN,
    LONG,
    NULL,
    NUMBERS,
    SHORT,
    STRING,
    WHOLE,
    Call,
    Literal,
    Path,
    Tree,
    common_type,
    in_type,
    sql_name,
)

DIALECT = "databricks"
"""sqlglot's name for Spark's SQL in which casts are strict, as they are by default in Spark 4."""

HINT = (
    "Use what docs/functions.md lists, or write the step as a function of one record or with "
    "@ps.batch"
)


class UnknownError(Exception):
    """The expression has something that is not known here."""


@dataclass(frozen=True)
class Scope:
    """The columns that an expression may name, with their types."""

    columns: Mapping[str, pa.DataType]


def _told(error: SqlglotError) -> str:
    """What the parser says, in a line and without the colours of a terminal."""
    found = [each.get("description", "") for each in getattr(error, "errors", ())]
    return " ".join((found[0] if found else str(error)).split())


def read(text: str, scope: Scope, step: str) -> Tree:
    """The tree of an expression; raises `TopologyError` for what cannot be had everywhere."""
    try:
        parsed = sqlglot.parse(text, read=DIALECT)
    except SqlglotError as error:
        raise TopologyError(
            f"The expression of step {step} is no Spark SQL: {text!r}: {_told(error)}",
            hint="It is one expression over key, value and timestamp, without SELECT",
        ) from error
    try:
        return _Reader(scope).read(_only(parsed, text))
    except UnknownError as error:
        raise TopologyError(
            f"The expression of step {step} cannot be used: {text!r}: {error}", hint=HINT
        ) from error


def _only(parsed: list[Any], text: str) -> Any:
    """The one expression that was parsed."""
    if len(parsed) != 1 or parsed[0] is None:
        raise UnknownError("it is not one expression")
    if "\\" in text:
        # The parsers do not agree on what all of them stand for.
        raise UnknownError("a backslash is not known")
    return parsed[0]


class _Reader:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def read(self, node: Any) -> Tree:
        """The tree of one parsed node."""
        kind = type(node)
        if kind not in _HANDLERS:
            name = node.name if kind is exp.Anonymous else node.key
            raise UnknownError(f"{name} is not known")
        handler, allowed = _HANDLERS[kind]
        for name, value in node.args.items():
            if value and name not in allowed:
                raise UnknownError(f"{node.key} with {name} is not known")
        return handler(self, node)

    def paren(self, node: exp.Paren) -> Tree:
        return self.read(node.this)

    def literal(self, node: exp.Literal) -> Tree:
        if node.is_string:
            return Literal(node.this, STRING)
        return _number(node.this)

    def boolean(self, node: exp.Boolean) -> Tree:
        return Literal(bool(node.this), BOOLEAN)

    def null(self, node: exp.Null) -> Tree:
        del node
        return Literal(None, NULL)

    def hex(self, node: exp.HexString) -> Tree:
        return Literal(bytes.fromhex(node.this), BINARY)

    def column(self, node: exp.Column | exp.Dot) -> Tree:
        names = [part.name for part in node.parts]
        return self._path(names)

    def _path(self, names: list[str]) -> Tree:
        first, columns = names[0].lower(), self._scope.columns
        if first not in ("key", "value", "timestamp"):
            names, first = ["value", *names], "value"
        if first not in columns:
            raise UnknownError(
                f"the type of {first} has no columns, so {'.'.join(names)} cannot be had"
            )
        kind, fields = columns[first], []
        for name in names[1:]:
            field = _field(kind, name)
            if field is None:
                known = ", ".join(columns)
                raise UnknownError(f"there is no column {names[-1]!r}: there are {known}")
            fields.append(field.name)
            kind = field.type
        return Path(first, tuple(fields), kind)

    def arithmetic(self, node: exp.Binary) -> Tree:
        arguments = self._numbers(node.this, node.expression)
        return Call(node.key, arguments, arguments[0].type)

    def divide(self, node: exp.Div) -> Tree:
        left, right = self._numbers(node.this, node.expression)
        return Call("div", (in_type(left, DOUBLE), in_type(right, DOUBLE)), DOUBLE)

    def integral_divide(self, node: exp.IntDiv) -> Tree:
        arguments = self._numbers(node.this, node.expression)
        if arguments[0].type not in WHOLE:
            raise UnknownError(f"DIV takes whole numbers, not {sql_name(arguments[0].type)}")
        return Call("intdiv", tuple(in_type(each, LONG) for each in arguments), LONG)

    def negate(self, node: exp.Neg) -> Tree:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return _number(f"-{node.this.this}")
        argument = self.read(node.this)
        # A literal with its type behind it, 2L, is a cast for the parser.
        if isinstance(argument, Literal) and argument.type in NUMBERS:
            return Literal(-argument.value, argument.type)
        return self._one_number("neg", argument)

    def absolute(self, node: exp.Abs) -> Tree:
        return self._one_number("abs", self.read(node.this))

    def _one_number(self, name: str, argument: Tree) -> Tree:
        if argument.type not in NUMBERS:
            raise UnknownError(f"{name} takes a number, not {sql_name(argument.type)}")
        return Call(name, (argument,), argument.type)

    def floor(self, node: exp.Floor | exp.Ceil) -> Tree:
        argument = self._one_number(node.key, self.read(node.this))
        assert isinstance(argument, Call)
        [number] = argument.arguments
        return in_type(number, LONG) if number.type in WHOLE else Call(node.key, (number,), LONG)

    def round(self, node: exp.Round) -> Tree:
        number = in_type(self.read(node.this), DOUBLE)
        digits = (
            Literal(0, INT)
            if node.args.get("decimals") is None
            else self.read(node.args["decimals"])
        )
        if node.this and self.read(node.this).type != DOUBLE:
            raise UnknownError("round takes a DOUBLE")
        if not isinstance(digits, Literal) or digits.type not in WHOLE:
            raise UnknownError("round takes a constant number of digits")
        return Call("round", (number,), DOUBLE, option=int(digits.value))

    def root(self, node: exp.Sqrt) -> Tree:
        argument = self._one_number("sqrt", self.read(node.this))
        assert isinstance(argument, Call)
        return Call("sqrt", (in_type(argument.arguments[0], DOUBLE),), DOUBLE)

    def is_nan(self, node: exp.IsNan) -> Tree:
        argument = self.read(node.this)
        if argument.type != DOUBLE:
            raise UnknownError("isnan takes a DOUBLE")
        return Call("isnan", (argument,), BOOLEAN)

    def compare(self, node: exp.Binary) -> Tree:
        return Call(node.key, self._alike(node.key, node.this, node.expression), BOOLEAN)

    def distinct(self, node: exp.NullSafeNEQ) -> Tree:
        pair = self._alike("IS DISTINCT FROM", node.this, node.expression)
        return Call("not", (Call("nullsafeeq", pair, BOOLEAN),), BOOLEAN)

    def between(self, node: exp.Between) -> Tree:
        value, low, high = self._alike("BETWEEN", node.this, node.args["low"], node.args["high"])
        above, below = Call("gte", (value, low), BOOLEAN), Call("lte", (value, high), BOOLEAN)
        return Call("and", (above, below), BOOLEAN)

    def member(self, node: exp.In) -> Tree:
        value, *choices = self._alike("IN", node.this, *node.expressions)
        if not choices:
            raise UnknownError("IN takes a list of values")
        tests: list[Tree] = [Call("eq", (value, each), BOOLEAN) for each in choices]
        found = tests[0]
        for test in tests[1:]:
            found = Call("or", (found, test), BOOLEAN)
        return found

    def known_as(self, node: exp.Is) -> Tree:
        argument, what = self.read(node.this), node.expression
        if isinstance(what, exp.Null):
            return Call("isnull", (argument,), BOOLEAN)
        if not isinstance(what, exp.Boolean):
            raise UnknownError("IS takes NULL, TRUE or FALSE")
        [truth] = self._truths("IS", argument)
        return Call("nullsafeeq", (truth, Literal(bool(what.this), BOOLEAN)), BOOLEAN)

    def logic(self, node: exp.Connector | exp.Not) -> Tree:
        given = [node.this] if isinstance(node, exp.Not) else [node.this, node.expression]
        arguments = self._truths(node.key.upper(), *map(self.read, given))
        return Call(node.key, arguments, BOOLEAN)

    def case(self, node: exp.Case) -> Tree:
        branches = node.args["ifs"]
        base = node.this
        tests: list[Tree] = []
        for branch in branches:
            if base is None:
                tests += self._truths("WHEN", self.read(branch.this))
            else:
                tests.append(Call("eq", self._alike("WHEN", base, branch.this), BOOLEAN))
        default = node.args.get("default") or exp.Null()
        results = self._alike("CASE", *(each.args["true"] for each in branches), default)
        return self._choice(tests, results)

    def one_of_two(self, node: exp.If) -> Tree:
        tests = self._truths("IF", self.read(node.this))
        results = self._alike("IF", node.args["true"], node.args.get("false") or exp.Null())
        return self._choice(list(tests), results)

    @staticmethod
    def _choice(tests: list[Tree], results: tuple[Tree, ...]) -> Tree:
        *chosen, otherwise = results
        for test, result in reversed(list(zip(tests, chosen, strict=True))):
            otherwise = Call("if", (test, result, otherwise), result.type)
        return otherwise

    def coalesce(self, node: exp.Coalesce) -> Tree:
        arguments = self._alike("coalesce", node.this, *node.expressions)
        return Call("coalesce", arguments, arguments[0].type)

    def null_if(self, node: exp.Nullif) -> Tree:
        value = self.read(node.this)
        left, right = self._alike("nullif", node.this, node.expression)
        same = Call("eq", (left, right), BOOLEAN)
        return Call("if", (same, Literal(None, value.type), value), value.type)

    def extreme(self, node: exp.Greatest | exp.Least) -> Tree:
        arguments = self._alike(node.key, node.this, *node.expressions)
        return Call(node.key, arguments, arguments[0].type)

    def text(self, node: exp.Func) -> Tree:
        return Call(node.key, self._texts(node.key, node.this), STRING)

    def length(self, node: exp.Length) -> Tree:
        argument = self.read(node.this)
        if argument.type not in (STRING, BINARY):
            raise UnknownError(f"length takes STRING or BINARY, not {sql_name(argument.type)}")
        return Call("length", (argument,), INT)

    def trim(self, node: exp.Trim) -> Tree:
        side = str(node.args.get("position") or "BOTH").upper()
        return Call("trim", self._texts("trim", node.this), STRING, option=side)

    def concat(self, node: exp.Concat | exp.DPipe) -> Tree:
        given = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
        return Call("concat", self._texts("concat", *given), STRING)

    def substring(self, node: exp.Substring) -> Tree:
        [text] = self._texts("substring", node.this)
        start = self.read(node.args["start"])
        length = (
            self.read(node.args["length"]) if node.args.get("length") else Literal(2**31 - 1, INT)
        )
        for each in (start, length):
            if each.type not in (SHORT, INT):
                raise UnknownError("substring takes INT for position and length")
        return Call("substring", (text, in_type(start, INT), in_type(length, INT)), STRING)

    def find(self, node: exp.Func) -> Tree:
        return Call(node.key, self._texts(node.key, node.this, node.expression), BOOLEAN)

    def like(self, node: exp.Like) -> Tree:
        text, pattern = self._texts("LIKE", node.this, node.expression)
        if not isinstance(pattern, Literal) or pattern.value is None or "\\" in pattern.value:
            raise UnknownError("LIKE takes a constant pattern, without a backslash")
        found = Call("like", (text,), BOOLEAN, option=pattern.value)
        return Call("not", (found,), BOOLEAN) if node.args.get("negate") else found

    def replace(self, node: exp.Replace) -> Tree:
        given = (node.this, node.expression, node.args.get("replacement") or exp.Literal.string(""))
        return Call("replace", self._texts("replace", *given), STRING)

    def cast(self, node: exp.Cast) -> Tree:
        kind = _CAST_TYPES.get(node.to.this)
        if kind is None or node.to.expressions:
            raise UnknownError(f"CAST to {node.to.sql(DIALECT)} is not known")
        if kind == DOUBLE and isinstance(node.this, exp.Literal) and not node.this.is_string:
            # 1.5D comes as a cast of what stands before the letter.
            return Literal(float(node.this.this), DOUBLE)
        argument = self.read(node.this)
        if isinstance(argument, Literal) and argument.type == INT and kind == LONG:
            return in_type(argument, LONG)
        if argument.type == kind:
            return argument
        if kind not in _CASTS.get(argument.type, ()):
            raise UnknownError(
                f"CAST from {sql_name(argument.type)} to {sql_name(kind)} is not known"
            )
        return Call("cast", (argument,), kind)

    def _numbers(self, *nodes: Any) -> tuple[Tree, ...]:
        trees = [self.read(node) for node in nodes]
        kind = common_type([tree.type for tree in trees])
        if kind == NULL:
            kind = INT
        if kind not in NUMBERS:
            given = ", ".join(sql_name(tree.type) for tree in trees)
            raise UnknownError(f"arithmetic takes numbers, not {given}")
        return tuple(in_type(tree, kind) for tree in trees)

    def _alike(self, name: str, *nodes: Any) -> tuple[Tree, ...]:
        trees = [self.read(node) for node in nodes]
        given = [tree.type for tree in trees]
        kind = common_type(given)
        if kind is None or (kind not in KNOWN and kind != NULL):
            types = ", ".join(dict.fromkeys(map(sql_name, given)))
            raise UnknownError(f"{name} takes values of one type, not {types}; use CAST")
        return tuple(in_type(tree, kind) for tree in trees)

    @staticmethod
    def _truths(name: str, *trees: Tree) -> tuple[Tree, ...]:
        for tree in trees:
            if tree.type not in (BOOLEAN, NULL):
                raise UnknownError(f"{name} takes BOOLEAN, not {sql_name(tree.type)}")
        return tuple(in_type(tree, BOOLEAN) for tree in trees)

    def _texts(self, name: str, *nodes: Any) -> tuple[Tree, ...]:
        trees = [self.read(node) for node in nodes]
        for tree in trees:
            if tree.type not in (STRING, NULL):
                raise UnknownError(f"{name} takes STRING, not {sql_name(tree.type)}; use CAST")
        return tuple(in_type(tree, STRING) for tree in trees)


def _number(text: str) -> Literal:
    if "e" in text.lower():
        return Literal(float(text), DOUBLE)
    if "." in text:
        raise UnknownError(f"{text} is a decimal, which is not known; write {text}D for a double")
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise UnknownError(f"{text} does not fit into BIGINT")
    return Literal(number, INT if -(2**31) <= number < 2**31 else LONG)


def _field(kind: pa.DataType, name: str) -> pa.Field | None:
    if not pa.types.is_struct(kind):
        return None
    exact = [field for field in kind if field.name == name]
    alike = [field for field in kind if field.name.lower() == name.lower()]
    found = exact or alike
    return found[0] if len(found) == 1 else None


_CAST_TYPES = {
    exp.DataType.Type.BIGINT: LONG,
    exp.DataType.Type.INT: INT,
    exp.DataType.Type.DOUBLE: DOUBLE,
    exp.DataType.Type.TEXT: STRING,
    exp.DataType.Type.BOOLEAN: BOOLEAN,
    exp.DataType.Type.BINARY: BINARY,
}
_CASTS: Mapping[pa.DataType, tuple[pa.DataType, ...]] = {
    NULL: (BOOLEAN, INT, LONG, DOUBLE, STRING, BINARY),
    BOOLEAN: (INT, LONG, DOUBLE, STRING),
    SHORT: (INT, LONG, DOUBLE, STRING, BOOLEAN),
    INT: (LONG, DOUBLE, STRING, BOOLEAN),
    LONG: (INT, DOUBLE, STRING, BOOLEAN),
    DOUBLE: (INT, LONG),
    STRING: (INT, LONG, DOUBLE, BINARY),
}

Handler = tuple[Callable[[_Reader, Any], Tree], frozenset[str]]


def _handler(method: Callable[[_Reader, Any], Tree], *allowed: str) -> Handler:
    return method, frozenset(allowed)


_BINARY_NODE = ("this", "expression")
_HANDLERS: dict[type[Any], Handler] = {
    exp.Paren: _handler(_Reader.paren, "this"),
    exp.Literal: _handler(_Reader.literal, "this", "is_string"),
    exp.Boolean: _handler(_Reader.boolean, "this"),
    exp.Null: _handler(_Reader.null),
    exp.HexString: _handler(_Reader.hex, "this"),
    exp.Column: _handler(_Reader.column, "this", "table", "db", "catalog"),
    exp.Dot: _handler(_Reader.column, "this", "expression"),
    exp.Add: _handler(_Reader.arithmetic, *_BINARY_NODE),
    exp.Sub: _handler(_Reader.arithmetic, *_BINARY_NODE),
    exp.Mul: _handler(_Reader.arithmetic, *_BINARY_NODE),
    exp.Mod: _handler(_Reader.arithmetic, *_BINARY_NODE),
    exp.Div: _handler(_Reader.divide, *_BINARY_NODE, "typed", "safe"),
    exp.IntDiv: _handler(_Reader.integral_divide, *_BINARY_NODE),
    exp.Neg: _handler(_Reader.negate, "this"),
    exp.Abs: _handler(_Reader.absolute, "this"),
    exp.Floor: _handler(_Reader.floor, "this"),
    exp.Ceil: _handler(_Reader.floor, "this"),
    exp.Round: _handler(_Reader.round, "this", "decimals"),
    exp.Sqrt: _handler(_Reader.root, "this"),
    exp.IsNan: _handler(_Reader.is_nan, "this"),
    exp.EQ: _handler(_Reader.compare, *_BINARY_NODE),
    exp.NEQ: _handler(_Reader.compare, *_BINARY_NODE),
    exp.GT: _handler(_Reader.compare, *_BINARY_NODE),
    exp.GTE: _handler(_Reader.compare, *_BINARY_NODE),
    exp.LT: _handler(_Reader.compare, *_BINARY_NODE),
    exp.LTE: _handler(_Reader.compare, *_BINARY_NODE),
    exp.NullSafeEQ: _handler(_Reader.compare, *_BINARY_NODE),
    exp.NullSafeNEQ: _handler(_Reader.distinct, *_BINARY_NODE),
    exp.Between: _handler(_Reader.between, "this", "low", "high"),
    exp.In: _handler(_Reader.member, "this", "expressions"),
    exp.Is: _handler(_Reader.known_as, *_BINARY_NODE),
    exp.And: _handler(_Reader.logic, *_BINARY_NODE),
    exp.Or: _handler(_Reader.logic, *_BINARY_NODE),
    exp.Not: _handler(_Reader.logic, "this"),
    exp.Case: _handler(_Reader.case, "this", "ifs", "default"),
    exp.If: _handler(_Reader.one_of_two, "this", "true", "false"),
    exp.Coalesce: _handler(_Reader.coalesce, "this", "expressions"),
    exp.Nullif: _handler(_Reader.null_if, *_BINARY_NODE),
    exp.Greatest: _handler(_Reader.extreme, "this", "expressions", "ignore_nulls"),
    exp.Least: _handler(_Reader.extreme, "this", "expressions", "ignore_nulls"),
    exp.Length: _handler(_Reader.length, "this"),
    exp.Upper: _handler(_Reader.text, "this"),
    exp.Lower: _handler(_Reader.text, "this"),
    exp.Trim: _handler(_Reader.trim, "this", "position"),
    exp.Concat: _handler(_Reader.concat, "expressions", "safe"),
    exp.DPipe: _handler(_Reader.concat, *_BINARY_NODE, "safe"),
    exp.Substring: _handler(_Reader.substring, "this", "start", "length"),
    exp.Contains: _handler(_Reader.find, *_BINARY_NODE),
    exp.StartsWith: _handler(_Reader.find, *_BINARY_NODE),
    exp.EndsWith: _handler(_Reader.find, *_BINARY_NODE),
    exp.Like: _handler(_Reader.like, *_BINARY_NODE, "negate"),
    exp.Replace: _handler(_Reader.replace, "this", "expression", "replacement"),
    exp.Cast: _handler(_Reader.cast, "this", "to"),
}

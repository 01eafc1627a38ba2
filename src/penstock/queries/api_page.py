"""A page of the OpenAPI document: plain HTML without a script, nothing is loaded from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
  color: #1b1f24; background: #fff; }
h2 { border-bottom: 1px solid #d0d7de; font-size: 1.1rem; margin-top: 2rem; }
code { font: 0.9em ui-monospace, monospace; background: #f0f2f4; padding: 0.1em 0.3em; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 0.8rem 0.2rem 0; }
th { color: #57606a; font-weight: 500; }
@media (prefers-color-scheme: dark) {
  body { color: #e6edf3; background: #0d1117; }
  code { background: #21262d; }
  h2 { border-color: #30363d; }
  th { color: #9198a1; }
}
"""


def api_page(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document.

    >>> "<h2><code>GET /x</code></h2>" in api_page({
    ...     "info": {"title": "T", "description": ""}, "paths": {"/x": {"get": {}}}})
    True
    """
    schemas = document.get("components", {}).get("schemas", {})
    routes = [
        _route(method, path, operation, schemas)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    title, text = escape(document["info"]["title"]), escape(document["info"]["description"])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<link rel="stylesheet" href="/docs/style.css">
</head>
<body>
<h1>{title}</h1>
<p>{text}</p>
<p>For programs: <a href="/openapi.json">openapi.json</a>. With a token:
<code>curl -H "Authorization: Bearer $TOKEN" ...</code></p>
{"".join(routes)}
</body>
</html>
"""


def _route(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    scopes = [
        scope for each in operation.get("security", []) for use in each.values() for scope in use
    ]
    need = f" Needs the scope <code>{escape(scopes[0])}</code>." if scopes else ""
    rows = [_parameter(each) for each in operation.get("parameters", [])]
    rows += [_field(name, each) for name, each in _body(operation, schemas).items()]
    head = "<tr><th>name</th><th>in</th><th>type</th><th>what</th></tr>"
    table = f"<table>{head}{''.join(rows)}</table>" if rows else ""
    return (
        f"<h2><code>{method.upper()} {escape(path)}</code></h2>\n"
        f"<p>{escape(operation.get('summary', ''))}{need}</p>\n{table}\n"
    )


def _parameter(parameter: dict[str, Any]) -> str:
    schema = parameter.get("schema", {})
    return _row(parameter["name"], parameter["in"], _kind(schema), parameter.get("description", ""))


def _field(name: str, schema: dict[str, Any]) -> str:
    return _row(name, "body", _kind(schema), schema.get("description", ""))


def _row(*cells: str) -> str:
    first, *others = (escape(cell) for cell in cells)
    return f"<tr><td><code>{first}</code></td>{''.join(f'<td>{each}</td>' for each in others)}</tr>"


def _body(operation: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    content = operation.get("requestBody", {}).get("content", {})
    reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
    fields: dict[str, Any] = schemas.get(reference.rpartition("/")[2], {}).get("properties", {})
    return fields


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(str(each) for each in schema["enum"])
    parts = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    return " | ".join(str(each.get("type", "any")) for each in parts)

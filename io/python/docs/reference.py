"""Writes docs/python-api.md from the docstrings of the stubs and of what is written in Python.

    python3 io/python/docs/reference.py            writes it
    python3 io/python/docs/reference.py --check    ends with 1 if it does not match the docstrings
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "python" / "neater"
PAGE = HERE.parents[2] / "docs" / "python-api.md"

MODULES = [
    ("neater", ["api.py", "_neater.pyi", "streams.py", "errors.py"]),
    ("neater.sim", ["sim.py"]),
    ("neater.http", ["http.py"]),
    ("neater.lab", ["lab.py"]),
]
# Native classes that a class of the same name extends, and functions that other modules wrap.
HIDDEN = {("_neater.pyi", name) for name in ("Neater", "Preconnection", "simulate", "check_scenario", "shipped_scenarios")}


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    arguments = ast.unparse(node.args)
    for own in ("self, /, ", "self, ", "cls, ", "self", "cls"):
        if arguments.startswith(own):
            arguments = arguments.removeprefix(own)
            break
    result = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    start = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{start}{name}({arguments}){result}".replace("'", '"')


def text(doc: str | None) -> str:
    return "" if doc is None else " ".join(doc.split())


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)


def members(node: ast.ClassDef) -> list[str]:
    lines: list[str] = []
    for i, item in enumerate(node.body):
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            doc = ast.get_docstring(item)
            if doc is None or item.name.startswith("_"):
                continue
            shown = item.name if is_property(item) else signature(item, item.name)
            if is_property(item) and item.returns is not None:
                shown += f": {ast.unparse(item.returns)}"
            lines.append(f"- `{shown}`: {text(doc)}")
        elif isinstance(item, (ast.AnnAssign, ast.Assign)):
            # The text that stands behind a field.
            after = node.body[i + 1] if i + 1 < len(node.body) else None
            if not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
                continue
            lines.append(f"- `{ast.unparse(item)}`: {text(str(after.value.value))}".replace("'", '"'))
    return lines


def inherited(classes: dict[str, ast.ClassDef], node: ast.ClassDef) -> list[str]:
    lines: list[str] = []
    for base in node.bases:
        name = base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
        of = isinstance(base, ast.Attribute) and base.attr
        if name in classes and classes[name] is not node and (name.startswith("_") or of):
            lines += members(classes[name])
    return lines


def page() -> str:
    out = ["# The Python package: reference\n"]
    out.append(
        "Made from the docstrings of the stubs by `io/python/docs/reference.py`; [python.md](python.md) is where to begin. "
        "Every method raises `ForkedError` in a child of `fork`.\n"
    )
    native = {
        item.name: item
        for item in ast.parse((PACKAGE / "_neater.pyi").read_text()).body
        if isinstance(item, ast.ClassDef)
    }
    for module, files in MODULES:
        out.append(f"## {module}\n")
        for file in files:
            tree = ast.parse((PACKAGE / file).read_text())
            if module != "neater":
                whole = ast.get_docstring(tree)
                out.append(f"{whole}\n" if whole else "")
            classes = {i.name: i for i in tree.body if isinstance(i, ast.ClassDef)}
            for item in tree.body:
                name = getattr(item, "name", "_")
                doc = ast.get_docstring(item) if isinstance(item, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) else None
                if name.startswith("_") or doc is None or (file, name) in HIDDEN:
                    continue
                if isinstance(item, ast.ClassDef):
                    out.append(f"### `{name}`\n\n{doc}\n")
                    lines = members(item) + inherited(native if file != "_neater.pyi" and file != "sim.py" else classes, item)
                    out.append("\n".join(lines) + "\n" if lines else "")
                elif isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    out.append(f"### `{signature(item, name)}`\n\n{doc}\n")
    text_of = "\n".join(part for part in out if part)
    return text_of.replace("../../docs/", "").rstrip() + "\n"


def main() -> int:
    made = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != made:
            print("docs/python-api.md does not match the docstrings: python3 io/python/docs/reference.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())

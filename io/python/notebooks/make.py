"""Writes the notebooks from their sources beside it (`*.py`, cells divided by `# %%`), without outputs.

    python3 io/python/notebooks/make.py            writes them
    python3 io/python/notebooks/make.py --check    ends with 1 if one does not match its source
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def notebook(source: str, name: str) -> str:
    cells = []
    for number, part in enumerate(source.split("# %%")[1:]):
        markdown = part.startswith(" [markdown]")
        body = part.removeprefix(" [markdown]").strip("\n")
        if markdown:
            body = "\n".join(line.removeprefix("# ").removeprefix("#") for line in body.splitlines())
        cell = {
            "cell_type": "markdown" if markdown else "code",
            "id": f"{name}-{number}",
            "metadata": {},
            "source": body.splitlines(keepends=True),
        }
        if not markdown:
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    wrong = 0
    for source in sorted(HERE.glob("[a-z]*_*.py")):
        made, path = notebook(source.read_text(), source.stem.replace("_", "-")), source.with_suffix(".ipynb")
        if "--check" not in sys.argv[1:]:
            path.write_text(made)
        elif not path.exists() or path.read_text() != made:
            print(f"{path.name} does not match {source.name}: python3 io/python/notebooks/make.py", file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())

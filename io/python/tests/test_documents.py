"""What is written about the package is what it is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import neater

IO_PYTHON = Path(__file__).resolve().parents[1]
DOCS = IO_PYTHON.parents[1] / "docs"


def test_the_reference_is_what_the_docstrings_say():
    for script in ("docs/reference.py", "notebooks/make.py"):
        done = subprocess.run([sys.executable, IO_PYTHON / script, "--check"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_everything_public_is_in_the_reference():
    page = (DOCS / "python-api.md").read_text()
    missing = [name for name in neater.__all__ if f"### `{name}" not in page and f"### `async {name}" not in page]
    assert not missing


def test_blocks_of_python_in_the_documents_compile():
    for page in (DOCS / "python.md", IO_PYTHON / "README.md"):
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        assert blocks
        for block in blocks:
            compile(block, str(page), "exec", flags=0x2000)  # PyCF_ALLOW_TOP_LEVEL_AWAIT


def test_types_are_checked(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, neater\n"
        "async def main() -> None:\n"
        "    async with neater.connect(('a', 1), needs='reliable', framer=neater.Framer.lines()) as c:\n"
        "        number: int = await c.send(b'x')\n"
        "        message: neater.Message | None = await c.receive()\n"
        "        view = memoryview(message) if message is not None else None\n"
        "        async for m in c:\n"
        "            print(m.data, number, view)\n"
        "        task: asyncio.Task[neater.Message | None] = asyncio.create_task(c.receive())\n"
        "        await task\n"
        "        c.send('text')  # type: ignore[arg-type]\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "--no-error-summary"]
    done = subprocess.run([*command, str(program)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_package_itself_is_typed_strictly(tmp_path):
    pytest.importorskip("mypy")
    pytest.importorskip("httpx")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*command, "-p", "neater"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stubs_are_those_of_the_module(tmp_path):
    pytest.importorskip("mypy")
    # PyO3 makes `__all__`; the two names of the buffer protocol are seen from Python 3.12 on.
    allowed = (r"neater\.http.*", r"neater\._neater\.__all__", r"neater\._neater\.Message\.__(release_)?buffer__")
    (tmp_path / "allow").write_text("\n".join(allowed) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "--allowlist", "allow", "--ignore-unused-allowlist", "neater._neater"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sctp_and_quic", "policy_study"])
def test_notebooks_run_and_draw(name, tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("NEATER_FIGURES", os.environ.get("NEATER_FIGURES", str(tmp_path)))
    monkeypatch.setenv("NEATER_SEEDS", os.environ.get("NEATER_SEEDS", "2"))
    monkeypatch.setenv("NEATER_DURATION", os.environ.get("NEATER_DURATION", "8 s"))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    book = nbformat.read(IO_PYTHON / "notebooks" / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    figures = list(Path(os.environ["NEATER_FIGURES"]).glob("*.png"))
    assert len(figures) >= 2 and all(f.stat().st_size > 10_000 for f in figures)

"""Experiments of the laboratory, which is a program of its own (`neater-lab`): this runs it and reads what it prints.

The simulator needs no such program: see `neater.sim`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

__all__ = ["LabError", "experiments", "run"]


class LabError(RuntimeError):
    """The laboratory is not installed, or has failed; the text has the reason, and what to do."""


def _call(*words: str, timeout: float | None, good: tuple[int, ...]) -> list[dict[str, Any]]:
    program = shutil.which("neater-lab")
    if program is None:
        raise LabError("neater-lab is not in PATH: in neater's source directory, `cargo install --locked --path sim/lab`")
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode not in good:
        raise LabError(done.stderr.strip() or f"neater-lab ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def experiments(timeout: float | None = 60) -> list[dict[str, Any]]:
    """The experiments that there are. Raises `LabError`."""
    return _call("--json", "list", timeout=timeout, good=(0,))


def run(experiment: str, *, quick: bool = False, timeout: float | None = None) -> list[dict[str, Any]]:
    """Runs an experiment by its id, such as `A6`, and returns what it measured. `quick` runs its shortest form.

    Raises `LabError`; `subprocess.TimeoutExpired` after `timeout` seconds.
    """
    # 1 is a bound that was not met: the figures are there.
    words = ["--json", "run", experiment, *(["--quick"] if quick else [])]
    return _call(*words, timeout=timeout, good=(0, 1))

"""What tests share. Each test has a limit of time of its own: one that hangs ends with the stacks of all threads."""

import asyncio
import faulthandler
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import neater

LIMIT = 60.0
SLOW = 1200.0


@pytest.fixture(autouse=True)
def limit(request: pytest.FixtureRequest) -> Iterator[None]:
    faulthandler.dump_traceback_later(SLOW if request.node.get_closest_marker("slow") else LIMIT, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def security() -> neater.SecurityParameters:
    return neater.self_signed()


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine in a loop of its own; what no task has taken care of is an error."""

    def runs(coroutine: Coroutine[Any, Any, Any]) -> Any:
        problems: list[dict[str, Any]] = []

        async def main() -> Any:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
            return await coroutine

        result = asyncio.run(main())
        assert not problems, problems
        return result

    return runs


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))

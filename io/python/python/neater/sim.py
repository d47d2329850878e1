"""The simulator: networks, traffic and what comes of them, in virtual time.

A scenario is TOML ([docs/scenarios.md](../../docs/scenarios.md) has its keys) or is put together here:

```python
from neater import sim

scenario = sim.Scenario(
    "pair",
    topology=sim.Dumbbell(bottleneck=sim.Link(rate="10 Mbit/s", delay="25 ms", queue="1 BDP", loss="1 %")),
    traffic={"sctp": sim.Bulk("l1", "r1", over="sctp")},
    duration="30 s",
)
print(scenario.run(seed=1).flows)
print(sim.sweep(scenario, {"link.bottleneck.loss": ["0 %", "1 %"]}, seeds=10).frame())
```

Runs of the same scenario, overrides and seed are alike to the byte. With pandas installed, results are frames
(`result.flow_frame()`, `sweep(...).frame()`); without it they are lists of dictionaries.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from . import _neater

if TYPE_CHECKING:
    import pandas

__all__ = [
    "Bulk",
    "Dumbbell",
    "Host",
    "Link",
    "OnOff",
    "Paths",
    "Ping",
    "Probe",
    "Result",
    "Scenario",
    "Sweep",
    "Video",
    "Web",
    "shipped",
    "sweep",
]

Record: TypeAlias = dict[str, Any]
Table: TypeAlias = Mapping[str, Any]
"""A table of TOML: keys as of docs/scenarios.md."""


def _frame(records: Sequence[Record]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as e:
        raise ImportError("frames are pandas': install neater[frames], or use the lists of dictionaries") from e
    return pandas.DataFrame.from_records(list(records))


@dataclass(kw_only=True)
class Link:
    """A link, the same in both directions. Anything that is not given is ideal; `more` are further keys of
    docs/scenarios.md."""

    rate: str | Table | None = None
    """Of IP packets: `"10 Mbit/s"`."""
    delay: str | None = None
    """Propagation, one way: `"25 ms"`."""
    queue: str | None = None
    """`"50 packets"`, `"64 kB"` or `"1 BDP"`."""
    loss: str | Table | None = None
    """`"1 %"`, at random, each way."""
    jitter: str | Table | None = None
    """`"5 ms"`, uniform, or a law."""
    discipline: str | Table | None = None
    """`drop-tail`, `head-drop`, `codel`, `fq-codel` or `red`."""
    mtu: int | None = None
    """In bytes."""
    more: Table = field(default_factory=dict)
    """Further keys."""


@dataclass(kw_only=True)
class Dumbbell:
    """Hosts `l1`… and `r1`… at both sides of one link, `bottleneck`."""

    pairs: int = 1
    """How many hosts at each side."""
    access: Link = field(default_factory=Link)
    """The links of the hosts."""
    bottleneck: Link = field(default_factory=Link)
    """The link that they share."""

    kind = "dumbbell"


@dataclass(kw_only=True)
class Paths:
    """Hosts `a` and `b` with an interface for each of up to eight disjoint paths."""

    paths: int = 2
    """How many."""
    access: Link = field(default_factory=Link)
    """The links of the hosts."""
    path: Link = field(default_factory=Link)
    """The links of all paths, …"""
    each: Sequence[Link] = ()
    """… or of each."""

    kind = "paths"


@dataclass(kw_only=True)
class Host:
    """Settings of a host: `tcp` as of docs/scenarios.md."""

    tcp: Table = field(default_factory=dict)
    """`congestion`, `sack`, `rack`, `ecn`, `initial-window`, `send-buffer` and others."""


@dataclass
class _Flows:
    source: str
    """The sending host."""
    to: str
    """The receiving host."""
    _: dataclasses.KW_ONLY
    flows: int = 1
    """How many."""
    start: str = "0 s"
    """When the first begins."""
    stop: str | None = None
    """When it ends."""
    more: Table = field(default_factory=dict)
    """Further keys."""


@dataclass
class Bulk(_Flows):
    """As much as goes through."""

    _: dataclasses.KW_ONLY
    over: str = "model"
    """What carries it: `model`, the simulator's TCP, or a program on neater's engine: `tcp`, `tls`, `quic` or `sctp`."""
    bytes: str | int | None = None
    """How much; without, until the end."""
    tcp: Table = field(default_factory=dict)
    """Settings of TCP over the hosts'."""

    kind = "bulk"


@dataclass
class Web(_Flows):
    """Pages of objects, asked for with pauses."""

    _: dataclasses.KW_ONLY
    object: str | Table | None = None
    """The size of an object."""
    objects: str | int | Table | None = None
    """How many a page has."""
    think: str | Table | None = None
    """The pause between pages."""
    request: str | int | Table | None = None
    """The size of a request."""

    kind = "web"


@dataclass
class Video(_Flows):
    """Frames over UDP."""

    _: dataclasses.KW_ONLY
    rate: str = "2 Mbit/s"
    """Of the payload."""

    kind = "video"


@dataclass
class OnOff(_Flows):
    """Datagrams, on and off."""

    _: dataclasses.KW_ONLY
    rate: str = "1 Mbit/s"
    """While on."""
    on: str | Table = "1 s"
    """How long on."""
    off: str | Table = "1 s"
    """How long off."""

    kind = "on-off"


@dataclass
class Ping(_Flows):
    """Echoes over UDP."""

    _: dataclasses.KW_ONLY
    interval: str = "100 ms"
    """Between two."""
    size: str | int | None = None
    """Of each."""

    kind = "ping"


@dataclass(kw_only=True)
class Probe:
    """What is sampled while it runs."""

    queue: Sequence[str] = ()
    """Queues of these links."""
    tcp: Sequence[str] = ()
    """Windows and round trips of this traffic."""
    goodput: Sequence[str] = ()
    """What this traffic delivers."""
    interval: str | None = "100 ms"
    """How often; None: at every change."""


def _name(of: str) -> str:
    return {"source": "from"}.get(of, of.replace("_", "-"))


def _plain(of: object) -> object:
    """As values of TOML, without what was not given."""
    if dataclasses.is_dataclass(of) and not isinstance(of, type):
        table: Record = {}
        kind = getattr(of, "kind", None)
        if kind is not None:
            table["kind"] = kind
        more: Table = {}
        for f in dataclasses.fields(of):
            value = getattr(of, f.name)
            if f.name == "more":
                more = value
            elif f.name == "each":
                table |= {f"path{i}": _plain(link) for i, link in enumerate(value, 1)}
            elif value is not None and value != {} and value != () and value != []:
                table[_name(f.name)] = _plain(value)
        return table | dict(more)
    if isinstance(of, Mapping):
        return {str(k): _plain(v) for k, v in of.items()}
    if isinstance(of, (list, tuple)):
        return [_plain(v) for v in of]
    if isinstance(of, (str, int, float)):
        return of
    raise TypeError(f"a scenario has texts, numbers, lists and tables, not {type(of).__name__}")


def _quote(text: str) -> str:
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(c, c if c.isprintable() else f"\\U{ord(c):08x}") for c in text) + '"'


def _toml(of: object) -> str:
    if isinstance(of, bool):
        return "true" if of else "false"
    if isinstance(of, str):
        return _quote(of)
    if isinstance(of, (int, float)):
        return repr(of)
    if isinstance(of, list):
        return "[" + ", ".join(_toml(v) for v in of) + "]"
    assert isinstance(of, dict)
    return "{ " + ", ".join(f"{_quote(k)} = {_toml(v)}" for k, v in of.items()) + " }" if of else "{}"


@dataclass(kw_only=True)
class Result:
    """What came of a run."""

    scenario: str
    """Its name."""
    seed: int
    """The seed that everything random in it followed from."""
    overrides: Mapping[str, str]
    """What was set."""
    flows: list[Record]
    """A record for each flow, as of flows.csv in docs/scenarios.md."""
    links: list[Record]
    """A record for each direction of each link."""
    objects: list[Record]
    """A record for each object of web sessions."""
    samples: dict[str, list[Record]]
    """What probes sampled: `queue`, `tcp`, `program`, `goodput`."""
    packet_hops: int
    """How many packets went over links."""
    digest: str
    """Equal for equal runs."""

    def flow_frame(self) -> pandas.DataFrame:
        """The flows as a frame of pandas."""
        return _frame(self.flows)

    def link_frame(self) -> pandas.DataFrame:
        """The links as a frame of pandas."""
        return _frame(self.links)

    def sample_frame(self, name: str) -> pandas.DataFrame:
        """What probes sampled, as a frame of pandas: `queue`, `tcp`, `program` or `goodput`. Raises `KeyError`."""
        return _frame(self.samples[name])


class Scenario:
    """A network, what happens in it, and what is measured.

    - `name`: letters, digits, `-` and `_`.
    - `topology`: a `Dumbbell`, `Paths`, or a table as of docs/scenarios.md.
    - `traffic`: flows by name.
    - `hosts`, `links`: settings of hosts and links by name. `probes`: what is sampled.
    - `parameters`: values that a text may name (`"$rtt / 2"`) and a sweep may change.
    - `warm_up`, `duration`: what is measured begins after the one and lasts for the other.
    - `more`: further tables.

    Raises `PropertyError`, with line, column and key, for what makes no sense.
    """

    def __init__(
        self,
        name: str,
        *,
        topology: Dumbbell | Paths | Table,
        traffic: Mapping[str, Bulk | Web | Video | OnOff | Ping | Table],
        hosts: Mapping[str, Host | Table] | None = None,
        links: Mapping[str, Link | Table] | None = None,
        probes: Sequence[Probe] = (),
        parameters: Mapping[str, str] | None = None,
        warm_up: str = "0 s",
        duration: str = "30 s",
        description: str = "",
        more: Table | None = None,
    ) -> None:
        document: Record = {"name": name, "description": description or name, "warm-up": warm_up, "duration": duration}
        tables: Record = {
            "parameters": parameters or {},
            "topology": topology,
            "host": hosts or {},
            "link": links or {},
            "traffic": traffic,
            "probe": list(probes),
            **(more or {}),
        }
        document |= {key: _plain(value) for key, value in tables.items() if value}
        self._set(document, None)

    def _set(self, document: Record, directory: Path | None) -> None:
        self._text = "".join(f"{_quote(k)} = {_toml(v)}\n" for k, v in document.items())
        self._directory = directory
        self._check()

    def _check(self) -> None:
        self.name, self.description, self.seed, self.seeds = _neater.check_scenario(self._text, [], self._directory)

    @classmethod
    def from_toml(cls, text: str, directory: str | os.PathLike[str] | None = None) -> Scenario:
        """Reads TOML; files that it names are beside it, in `directory`. Raises `PropertyError`."""
        scenario = cls.__new__(cls)
        scenario._text = text
        scenario._directory = None if directory is None else Path(directory)
        scenario._check()
        return scenario

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Scenario:
        """Reads a file. Raises `OSError`, `PropertyError`."""
        return cls.from_toml(Path(path).read_text(encoding="utf-8"), Path(path).parent)

    @classmethod
    def shipped(cls, name: str) -> Scenario:
        """One of those that come with neater: see `shipped()`. Raises `KeyError`."""
        return cls.from_toml(dict(_neater.shipped_scenarios())[name])

    def to_toml(self) -> str:
        """As TOML, which `neater lab sim` runs, too."""
        return self._text

    def run(
        self,
        seed: int | None = None,
        overrides: Mapping[str, str] | None = None,
        progress: Callable[[float], object] | None = None,
    ) -> Result:
        """Runs it once, without the interpreter's lock. `overrides` set parameters, or any key by its dotted name;
        `progress` is called with the share that is done, and stops the run by returning False (`KeyboardInterrupt`).

        Raises `PropertyError` for overrides that make no sense.
        """
        overrides = dict(overrides or {})
        seed = self.seed if seed is None else seed
        raw = _neater.simulate(self._text, seed, list(overrides.items()), self._directory, progress)
        return Result(overrides=overrides, **raw)

    def __repr__(self) -> str:
        return f"<Scenario {self.name}: {self.description}>"


def shipped() -> dict[str, str]:
    """The scenarios that come with neater: names and descriptions."""
    return {name: _neater.check_scenario(text, [], None)[1] for name, text in _neater.shipped_scenarios()}


@dataclass(kw_only=True)
class Sweep:
    """What came of a sweep: its runs in the order of points and seeds."""

    axes: dict[str, list[str]]
    """The keys that were changed, and their values."""
    results: list[Result]
    """The runs."""

    def records(self) -> list[Record]:
        """A record for each flow of each run, with the values of the axes (`axis.KEY`) and the seed."""
        return [
            {**{f"axis.{key}": result.overrides[key] for key in self.axes}, "seed": result.seed, **flow}
            for result in self.results
            for flow in result.flows
        ]

    def frame(self) -> pandas.DataFrame:
        """The records as a frame of pandas."""
        return _frame(self.records())

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)


def _one(
    text: str, directory: Path | None, seed: int, overrides: Record
) -> Record:
    return _neater.simulate(text, seed, list(overrides.items()), directory, None)


class _Bar:
    """A line with the progress, where standard error is a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        if self._shown:
            filled = 40 * done // max(total, 1)
            end = "\n" if done == total else ""
            print(f"\r[{'#' * filled:<40}] {done}/{total} runs", end=end, file=sys.stderr, flush=True)


def sweep(
    scenario: Scenario,
    axes: Mapping[str, Sequence[str | int | float]],
    *,
    seed: int | None = None,
    seeds: int = 1,
    overrides: Mapping[str, str] | None = None,
    processes: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Sweep:
    """Runs all combinations of the axes' values, each with `seeds` seeds counting up from `seed`, over `processes` processes
    (as many as there are processors; 1: this one alone). `progress(done, total)` is called after each run; without it a
    line on a terminal's standard error is. All points are checked before anything is run.

    Raises `PropertyError` for a point that makes no sense, `ValueError` for a sweep without runs. Where processes are
    started with an interpreter of their own, as here, a script has to be importable: begin it with `if __name__ == "__main__":`.
    """
    varied = {key: [str(v) for v in values] for key, values in axes.items()}
    first = scenario.seed if seed is None else seed
    points = [dict(zip(varied, values, strict=True)) for values in itertools.product(*varied.values())]
    common = dict(overrides or {})
    jobs = [(point, first + i) for point in points for i in range(seeds)]
    if not jobs:
        raise ValueError("a sweep needs values for each axis, and at least one seed")
    for point in points:
        _neater.check_scenario(scenario._text, [*common.items(), *point.items()], scenario._directory)
    report = progress or _Bar()
    workers = min(processes or os.cpu_count() or 1, len(jobs))
    raw: list[Record | None] = [None] * len(jobs)
    if workers <= 1:
        for i, (point, number) in enumerate(jobs):
            raw[i] = _one(scenario._text, scenario._directory, number, common | point)
            report(i + 1, len(jobs))
    else:
        # Spawned and not forked: they inherit nothing that this process has open.
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
            tasks = {
                pool.submit(_one, scenario._text, scenario._directory, number, common | point): i
                for i, (point, number) in enumerate(jobs)
            }
            try:
                for done, task in enumerate(concurrent.futures.as_completed(tasks), 1):
                    raw[tasks[task]] = task.result()
                    report(done, len(jobs))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    results = [
        Result(overrides=common | point, **run)
        for (point, _), run in zip(jobs, raw, strict=True)
        if run is not None
    ]
    return Sweep(axes=varied, results=results)

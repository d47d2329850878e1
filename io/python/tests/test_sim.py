"""The simulator from Python."""

import pytest

import neater
from neater import sim

SHORT = sim.Scenario(
    "short",
    topology=sim.Dumbbell(bottleneck=sim.Link(rate="$rate", delay="10 ms", queue="1 BDP", loss="$loss")),
    traffic={"bulk": sim.Bulk("l1", "r1", over="model")},
    probes=[sim.Probe(queue=["bottleneck"], goodput=["bulk"], interval="500 ms")],
    parameters={"rate": "10 Mbit/s", "loss": "0 %"},
    warm_up="1 s",
    duration="4 s",
)


def test_a_scenario_of_dataclasses_runs_and_repeats_itself():
    first, again, other = SHORT.run(seed=1), SHORT.run(seed=1), SHORT.run(seed=2, overrides={"loss": "2 %"})
    assert first.digest == again.digest != other.digest
    assert first.flows == again.flows
    (flow,) = first.flows
    assert flow["traffic"] == "bulk" and 8 < flow["goodput_mbit"] < 10 and flow["rtt_mean_s"] > 0.02
    assert other.flows[0]["goodput_mbit"] < flow["goodput_mbit"]
    assert {(r["link"], r["direction"]) for r in first.links} >= {("bottleneck", "forward"), ("bottleneck", "backward")}
    assert first.samples["goodput"][-1]["subject"].startswith("bulk")
    assert set(first.samples) >= {"queue", "goodput"} and first.packet_hops > 1000


def test_the_same_scenario_by_toml_and_by_file(tmp_path):
    text = SHORT.to_toml()
    assert sim.Scenario.from_toml(text).run(seed=3).digest == SHORT.run(seed=3).digest
    (tmp_path / "my.trace").write_text("".join(f"{i}\n" for i in range(1, 1001)))
    (tmp_path / "s.toml").write_text(text.replace('"rate" = "$rate"', '"rate" = { trace-file = "my.trace" }'))
    traced = sim.Scenario.from_file(tmp_path / "s.toml")
    assert 5 < traced.run(seed=1).flows[0]["goodput_mbit"] < 12.5


@pytest.mark.parametrize("over", ["quic", "sctp", "tls", "tcp"])
def test_programs_of_the_engine(over):
    scenario = sim.Scenario(
        over,
        topology=sim.Dumbbell(bottleneck=sim.Link(rate="5 Mbit/s", delay="10 ms", queue="1 BDP")),
        traffic={"flow": sim.Bulk("l1", "r1", over=over)},
        duration="3 s",
    )
    (flow,) = scenario.run(seed=1).flows
    assert 3 < flow["goodput_mbit"] < 5 and flow["failures"] == 0


def test_what_comes_with_neater_runs():
    names = sim.shipped()
    assert "dumbbell" in names
    result = sim.Scenario.shipped("dumbbell").run(overrides={"duration": "2 s", "warm-up": "1 s"})
    assert [f["traffic"] for f in result.flows] == ["newreno", "cubic"]
    with pytest.raises(KeyError):
        sim.Scenario.shipped("nothing")


def test_what_makes_no_sense_is_named_with_its_place():
    with pytest.raises(neater.PropertyError, match="colour"):
        sim.Scenario("x", topology=sim.Dumbbell(bottleneck=sim.Link(more={"colour": "red"})), traffic={})
    with pytest.raises(neater.PropertyError, match="line 3"):
        sim.Scenario.from_toml('name = "x"\n\nduration = "soon"\n')
    with pytest.raises(neater.PropertyError):
        SHORT.run(overrides={"loss": "many"})
    with pytest.raises(TypeError):
        sim.Scenario("x", topology={"kind": object()}, traffic={})


def test_a_run_is_stopped_by_its_progress():
    shares = []

    def until_half(share):
        shares.append(share)
        return share < 0.5

    with pytest.raises(KeyboardInterrupt):
        SHORT.run(progress=until_half)
    assert shares and shares[-1] >= 0.5 and len(shares) < 60

    def broken(share):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        SHORT.run(progress=broken)


def test_a_sweep_is_the_same_over_processes_and_here():
    reports = []
    axes = {"loss": ["0 %", "1 %"]}
    here = sim.sweep(SHORT, axes, seeds=2, processes=1, overrides={"duration": "2 s"})
    there = sim.sweep(
        SHORT, axes, seeds=2, processes=2, overrides={"duration": "2 s"}, progress=lambda d, t: reports.append((d, t))
    )
    assert here.records() == there.records() and len(there) == 4
    assert reports == [(i, 4) for i in range(1, 5)]
    points = [(r["axis.loss"], r["seed"]) for r in here.records()]
    assert points == [("0 %", 1), ("0 %", 2), ("1 %", 1), ("1 %", 2)]
    with pytest.raises(neater.PropertyError):
        sim.sweep(SHORT, {"loss": ["0 %", "many"]})
    with pytest.raises(ValueError):
        sim.sweep(SHORT, {"loss": []})


def test_frames():
    pytest.importorskip("pandas")
    result = SHORT.run(seed=1, overrides={"duration": "2 s"})
    assert list(result.flow_frame()["traffic"]) == ["bulk"]
    assert result.link_frame().shape[0] == len(result.links)
    assert result.sample_frame("goodput")["mbit_per_s"].max() > 1
    frame = sim.sweep(SHORT, {"loss": ["0 %", "2 %"]}, processes=1, overrides={"duration": "2 s"}).frame()
    assert frame.groupby("axis.loss")["goodput_mbit"].mean().shape == (2,)


def test_the_lab_says_what_to_do_where_it_is_not_installed(monkeypatch):
    from neater import lab

    monkeypatch.setenv("PATH", "")
    with pytest.raises(lab.LabError, match="cargo install"):
        lab.experiments()

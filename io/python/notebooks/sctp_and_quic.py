# %% [markdown]
# # SCTP and QUIC over a grid of networks
#
# One bulk transfer at a time over one bottleneck, in the simulator: neater's own SCTP, neater's QUIC, and the simulator's TCP
# (CUBIC) beside them. The code of SCTP and QUIC is what ships; time is virtual, so every figure can be repeated from its seed.
#
# What is varied: the round trip, and packets lost at random. The rate is 10 Mbit/s, the queue one bandwidth-delay product.

# %%
import os

import matplotlib.pyplot as plt

from neater import sim

SEEDS = int(os.environ.get("NEATER_SEEDS", "5"))
DURATION = os.environ.get("NEATER_DURATION", "20 s")
CARRIERS = ["sctp", "quic", "model"]
NAMES = {"sctp": "SCTP", "quic": "QUIC", "model": "TCP (CUBIC)"}

scenario = sim.Scenario(
    "grid",
    topology=sim.Dumbbell(
        bottleneck=sim.Link(rate="10 Mbit/s", delay="$rtt / 2", queue="1 BDP", loss="$loss")
    ),
    traffic={"bulk": sim.Bulk("l1", "r1", more={"over": "$over"})},
    parameters={"rtt": "50 ms", "loss": "0 %", "over": "model"},
    warm_up="5 s",
    duration=DURATION,
)
print(scenario.to_toml())

# %% [markdown]
# ## The sweep
#
# All combinations, each with several seeds. `processes=None` takes as many processes as there are processors.

# %%
axes = {"over": CARRIERS, "rtt": ["20 ms", "50 ms", "100 ms"], "loss": ["0 %", "0.1 %", "1 %"]}
frame = sim.sweep(scenario, axes, seeds=SEEDS).frame()
assert (frame["failures"] == 0).all()
frame["carrier"] = frame["axis.over"].map(NAMES)
frame["rtt_ms"] = frame["axis.rtt"].str.removesuffix(" ms").astype(int)
frame["loss_percent"] = frame["axis.loss"].str.removesuffix(" %").astype(float)
means = frame.groupby(["carrier", "rtt_ms", "loss_percent"])["goodput_mbit"].agg(["mean", "std"]).reset_index()
means.pivot_table(index=["rtt_ms", "loss_percent"], columns="carrier", values="mean").round(2)

# %%
losses = sorted(means["loss_percent"].unique())
figure, panels = plt.subplots(1, len(losses), figsize=(10, 3.4), sharey=True, layout="constrained")
for panel, loss in zip(panels, losses, strict=True):
    for carrier, marker in zip(NAMES.values(), "osx", strict=True):
        part = means[(means["carrier"] == carrier) & (means["loss_percent"] == loss)].sort_values("rtt_ms")
        panel.errorbar(part["rtt_ms"], part["mean"], yerr=part["std"].fillna(0), marker=marker, capsize=3, label=carrier)
    panel.set_title(f"{loss:g} % lost")
    panel.set_xlabel("round trip without queue, ms")
    panel.set_xticks([20, 50, 100])
    panel.set_ylim(0, 10)
    panel.grid(alpha=0.3)
panels[0].set_ylabel("goodput, Mbit/s")
panels[0].legend()
figure.suptitle("10 Mbit/s, queue of 1 BDP: mean and standard deviation over seeds")
figure.savefig(os.environ.get("NEATER_FIGURES", ".") + "/sctp-and-quic.png", dpi=120)

# %% [markdown]
# ## The course of one run
#
# Probes sample while it runs: here the queue of the bottleneck and the goodput, with 50 ms and nothing lost.

# %%
figure, (above, below) = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True, layout="constrained")
probed = sim.Scenario(
    "course",
    topology=sim.Dumbbell(bottleneck=sim.Link(rate="10 Mbit/s", delay="25 ms", queue="1 BDP")),
    traffic={"bulk": sim.Bulk("l1", "r1", more={"over": "$over"})},
    parameters={"over": "model"},
    probes=[sim.Probe(queue=["bottleneck"], goodput=["bulk"], interval="100 ms")],
    duration="15 s",
)
for over in CARRIERS:
    result = probed.run(seed=1, overrides={"over": over})
    goodput = result.sample_frame("goodput")
    queue = result.sample_frame("queue")
    queue = queue[queue["subject"].str.contains("forward")]
    above.plot(goodput["at_s"], goodput["mbit_per_s"], label=NAMES[over])
    below.plot(queue["at_s"], queue.iloc[:, 2] / 1e3, label=NAMES[over])
above.set_ylabel("goodput, Mbit/s")
above.set_ylim(0, 11)
above.legend(loc="lower right")
below.set_ylabel("queue, kB")
below.set_xlabel("time, s")
for panel in (above, below):
    panel.grid(alpha=0.3)
figure.savefig(os.environ.get("NEATER_FIGURES", ".") + "/course.png", dpi=120)

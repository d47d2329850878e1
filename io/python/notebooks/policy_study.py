# %% [markdown]
# # What needs come to, and what policies make of them
#
# A program states what it needs; neater ranks protocol stacks by it, and an administrator's policies define what that means on
# this host. Nothing here sends a packet to a peer: decisions are asked for and explained.

# %%
import json
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import neater

NEEDS = ["reliable", "reliable, low-delay", "reliable, unordered", "reliable, streams", "bulk, reliable", "datagrams", "real-time, unreliable"]
REMOTE = "192.0.2.1:443"
system = neater.Neater(without_policies=True)


def ranked(needs: str, system: neater.Neater) -> dict[str, int]:
    pre = neater.Preconnection(REMOTE, needs=needs, system=system, framer=neater.Framer.length_prefixed())
    return {name: score for name, score, _ in pre.explain().ranked if score is not None}


scores = pd.DataFrame({needs: ranked(needs, system) for needs in NEEDS}).T
scores

# %% [markdown]
# Empty cells are stacks that the needs rule out. The picture has the same: what is darker stands before what is lighter.

# %%
figure, panel = plt.subplots(figsize=(8.5, 3.8), layout="constrained")
image = panel.imshow(scores.to_numpy(dtype=float), cmap="Blues", aspect="auto")
panel.set_xticks(range(len(scores.columns)), scores.columns, rotation=25, ha="right")
panel.set_yticks(range(len(scores.index)), scores.index)
for y, needs in enumerate(scores.index):
    for x, stack in enumerate(scores.columns):
        value = scores.loc[needs, stack]
        middle = scores.to_numpy(dtype=float)
        dark = value > (pd.Series(middle.ravel()).min() + pd.Series(middle.ravel()).max()) / 2
        panel.text(x, y, "-" if pd.isna(value) else f"{value:.0f}", ha="center", va="center", color="white" if dark else "black")
figure.colorbar(image, label="score")
panel.set_title("How needs rank the stacks (-: ruled out)")
figure.savefig(os.environ.get("NEATER_FIGURES", ".") + "/needs.png", dpi=120)

# %% [markdown]
# ## Why: one decision, taken apart

# %%
pre = neater.Preconnection(REMOTE, needs="reliable, low-delay", system=system, framer=neater.Framer.length_prefixed())
print(pre.explain())

# %% [markdown]
# ## Policies
#
# Three hosts: one without policies, one whose administrator wants TCP below everything, one where nothing may be opened.

# %%
folder = Path(tempfile.mkdtemp())
POLICIES = {
    "none": [],
    "TCP only": [{"uid": "tcp-only", "priority": 5, "match": {}, "properties": {"transport": {"value": ["TCP"], "precedence": 2}}}],
    "nothing": [{"uid": "deny", "properties": [[]]}],
}
rows = []
for name, policies in POLICIES.items():
    place = folder / name.replace(" ", "-")
    place.mkdir()
    for policy in policies:
        (place / f"{policy['uid']}.policy").write_text(json.dumps(policy))
    of_host = neater.Neater(policies=[place])
    assert not of_host.policy_faults(), of_host.policy_faults()
    for needs in NEEDS[:3]:
        pre = neater.Preconnection(REMOTE, needs=needs, system=of_host, framer=neater.Framer.length_prefixed())
        story = pre.explain_policies()
        rows.append(
            {
                "policies": name,
                "needs": needs,
                "asked": ", ".join(pre.eligible()),
                "left": ", ".join(story.stacks) if story else ", ".join(pre.eligible()),
                "prohibited": bool(story and story.prohibited),
            }
        )
table = pd.DataFrame(rows)
assert table[table["policies"] == "nothing"]["prohibited"].all()
table

# %%
counts = table.assign(stacks=table["left"].map(lambda s: len([x for x in s.split(", ") if x])))
counts.loc[counts["prohibited"], "stacks"] = 0
figure, panel = plt.subplots(figsize=(7, 3), layout="constrained")
counts.pivot(index="needs", columns="policies", values="stacks")[list(POLICIES)].plot.barh(ax=panel)
panel.set_xlabel("stacks that may be tried")
panel.set_ylabel("")
panel.invert_yaxis()
panel.set_title("What policies leave of what is asked")
figure.savefig(os.environ.get("NEATER_FIGURES", ".") + "/policies.png", dpi=120)

# %% [markdown]
# The last of these in words, with its file and line:

# %%
print(story)

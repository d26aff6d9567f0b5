"""The beginning of `docs/evaluation-siena.md`."""

HEAD = """# SIENA's evaluation, reproduced

*Written by `edn evaluate siena`; change the experiments in `evaluation/siena/`, not this page.*

SIENA is the second system that this network descends from ("Design and Evaluation of a Wide-Area Event
Notification Service", Carzaniga, Rosenblum and Wolf, ACM TOCS 19(3), 2001, called *000* here; Carzaniga's
dissertation, 1998, is *003*). It connects servers of many sites and was evaluated by simulation. This page
runs that evaluation again: its simulator, its architectures and its 24 groups of claims (C1 to C24), on the
frame of [the first evaluation](evaluation.md). It also simulates our summaries in the same network.

```
edn evaluate siena                     # quick sizes, about a minute
edn evaluate siena --full              # the published sizes; writes this page
edn evaluate siena-total-cost          # one experiment
edn evaluate siena --animate           # a page in which a subscription and a notification spread
edn evaluate siena --scenario FILE     # one scenario in the published format
```

| | architecture |
|---|---|
| ce | one central server |
| hs | hierarchical: a tree with a root; subscriptions and all notifications go up to it |
| as | acyclic peers: subscriptions are forwarded to all servers, unless covered |
| aa | acyclic peers: advertisements are forwarded to all, subscriptions towards them |
| gs | peers in any graph: reverse path forwarding; built and tested, but plotted in neither text |

**Verdicts are strict.** A seed is a whole evaluation: every point of it is the mean of several runs. A
claim is judged at every seed. A number is *reproduced* if it is within 15 % at every seed. A claim without
a number is an order: a comparison holds if it holds at every seed, without equality, and fails if it holds
at none; between lies the noise. All of them is reproduced, half or more is *partly*, fewer is *not*. If the
verdict depends on the noise, the claim is **undecided**.

**Readings.** Where the texts are ambiguous or differ, every reading is judged; the first one counts. R1:
delays of a Poisson process (000), or one draw per object (003). R2: 10 publications per advertisement and
10 notifications per subscription (000), or 20 and 15 (003). R3: a graph per run (000), or one graph (003).
R4: an unsubscription in the hierarchy sends uncovered roots again (000), or not (003); with one kind of
event it makes no difference. R5: two meanings of Figure 23. R6: cost per request (000), or per service id
(003). R7: parties that never get their notifications wait for ever, or end with the run. One more of ours:
the "minimal spanning tree rooted in node 0" is the cheapest tree, or that of the cheapest paths.

**What the texts get wrong.** The tests in `tests/unit/evaluation/` reproduce Figures 13 to 16 state by
state, and check all architectures against an oracle on 1,000 random trees and 200 graphs with cycles. They
found:

- 000, 5.2.2.3 forwards an unsubscription to the master as it came. The master then also cancels
  subscriptions of other clients that it covers. 003 cancels one by one, but sends nothing again that this
  uncovers. Both lose notifications; our server cancels as 003 and sends again as 000.
- Equation (1) of 000 prunes a filter by covering filters of any origin. In a graph with cycles that loses
  notifications, because the trees of two origins differ. Our server prunes per origin.
- Neither text says that a notification is not sent back where it came from; without that every one would be
  repeated.
- Delegating a part of a sequence changes what matches, though the four conditions of 003, 4.3.3 hold
  ([below](#siena-delegation)).
- Errata: Table IV of 000 (and 4.2 of 003) names server 3 as the provider of a1, the text and the delegation
  server 2. Table 4.3 of 003 asks for `attempts > 1` and `> 2`, the delegated pattern for `= 1` and `= 2`.
  In Figure 16, [airline=UA] and [airline=AZ] are roots, so [airline=any] of Figure 15 (c) must be gone,
  though the text says that the state follows from it.
"""

"""The second published system, SIENA: its algorithms, its simulator and its evaluation.

`kernel`, `network` and `trace` are the simulator, `servers`, `generic`, `poset` and `requests` the
architectures, `clients` and `scenario` the applications. `exact` runs a scenario event by event; `compiled`
runs the published ones, which have one kind of event, thousands of times faster with equal results.
`patterns` factors and delegates sequences. `rectangles` has interest in rectangles, by covering and by our
summaries. `animation` draws a page. `experiments/` has the claims.

Imports `edn` and, for experiments and figures, the frame in `evaluation`.
"""

"""Throughput of a running network, measured with Locust: `python -m load`.

`__main__` starts a network and a receiver of its own, lets Locust loose on them in another process (it
patches the standard library, which nothing else should live with) and sums up. `plan` says what happens
when, `users` is what Locust runs, `timeline` watches the network, `report` is the page that a run leaves.
Only `edn` is imported from here, and nothing imports this package.
"""

"""Throughput of a running network, measured with Locust: `python -m load`.

`__main__` starts a network and a receiver, runs Locust in another process (it patches the standard library)
and summarises. `plan` has the phases of a run, `users` is the Locust file, `timeline` samples the network,
`report` writes the page of a run. Imports only `edn`, and nothing imports this package.
"""

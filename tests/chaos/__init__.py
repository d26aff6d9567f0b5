"""A network of real processes that is killed, stopped and cut off under load, and judged by the checker.

`python -m tests.chaos` is one run; `docs/chaos.md` says what it does and how to replay one.

| module | what it gives |
|---|---|
| `schedule` | which fault comes when, from a seed |
| `proxy` | a TCP proxy that cuts, delays, half-closes and swallows |
| `zygote`, `spawning` | processes that start in a fraction of a second, because they are forked |
| `fleet` | dispatcher and servers, started again whenever they die |
| `faults` | carries out the schedule |
| `sinks` | receivers of notifications, some of them unreliable |
| `clients` | publishers and subscribers, recording every operation |
| `run`, `tally` | all of it together, and what it came to |
"""

"""A network on PostgreSQL with Patroni whose machines die, pause and lose each other under load.

`python -m tests.chaos.cluster` is one run; `docs/chaos.md` says what it does. Clients, sinks, recording and
checker are those of `tests.chaos`.

| module | what it gives |
|---|---|
| `database` | three PostgreSQL nodes with Patroni and etcd, each behind proxies |
| `fleet` | dispatchers, servers and spares; a dead process is never restarted, a fresh one comes later |
| `schedule` | which fault comes when, from a seed |
| `faults` | carries out the schedule |
| `run` | all of it together |
"""

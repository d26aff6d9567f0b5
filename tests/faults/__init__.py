"""Plants faults in the services: patches their classes before they run, as the product has no test hooks.

| module | variable | effect |
|---|---|---|
| `defects`, `cluster_defects` | `EDN_TEST_DEFECT` | the process breaks a guarantee, and tests must notice |
| `checkpoints` | `EDN_TEST_CHECKPOINTS` | the dispatcher stops inside a move where a test asks for it |
| `wall_clock` | `EDN_TEST_CLOCK_FILE` | a test steps the wall clock of the process |
| `leases` | `EDN_TEST_LEASE_SECONDS` | leases on PostgreSQL are shorter |

`python -m tests.faults dispatcher|edn_server …` plants the faults that the environment names, then runs the
service. Launchers of tests use it only where one of the variables is set.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.faults import checkpoints, cluster_defects, defects, leases, wall_clock

#: importing it registers its defects
_REGISTERED = cluster_defects

SERVICES = ("dispatcher", "edn_server")


def are_wanted(environment: Mapping[str, str]) -> bool:
    """Return whether an environment names a fault."""
    modules = (defects, checkpoints, wall_clock, leases)
    return any(environment.get(module.VARIABLE) for module in modules)


def plant(environment: Mapping[str, str]) -> None:
    """Plant the faults that an environment names in this process; before its service starts."""
    # First: a defect reads the stepped clock.
    wall_clock.plant(environment.get(wall_clock.VARIABLE, ""))
    leases.plant(environment.get(leases.VARIABLE, ""))
    checkpoints.plant(environment.get(checkpoints.VARIABLE, ""))
    named = defects.parse(environment.get(defects.VARIABLE, ""))
    defects.plant(named)
    defects.announce(named)

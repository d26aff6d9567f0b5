"""Real processes on free ports, for tests: dispatcher, servers, and a receiver of notifications.

`Process` starts one, waits for its readiness line, stops or kills it and starts it again; `Network` is a
dispatcher with its servers, on data folders or in PostgreSQL (`Engine`); `Receiver` is the other end of
webhooks, `Hook` one inside the test. Nothing here sleeps for luck: `until` waits for a condition and says
what it waited for when time runs out.
"""

from tests.network.engine import Engine
from tests.network.hook import Hook
from tests.network.processes import Network, Process, until
from tests.network.receiver import Delivery, Receiver

__all__ = ["Delivery", "Engine", "Hook", "Network", "Process", "Receiver", "until"]

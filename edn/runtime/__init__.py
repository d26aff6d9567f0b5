"""The runtime that both services share: HTTP clients, storage threads and the like. Imports no service."""

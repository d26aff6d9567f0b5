"""Sequences on a server: candidates go through monitors, and complete sequences become notifications.

May import `outbox` and the packages below it.
"""

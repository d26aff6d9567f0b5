"""The data folder and everything that is SQL: tables, named queries, and the thread that writes.

No module of another package here is imported; only `edn`.
"""

"""Where the precision of summaries is decided: readings in, decisions out.

`tuning` holds the setting that is in force and the bounded history of decisions. Policies that decide by
themselves get modules of their own. Imports `edn` only; knows nothing of HTTP, servers or summaries.
"""

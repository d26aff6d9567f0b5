"""The log and its tables in a SQLite file: `log` commits and reads, `schema` has the tables."""

"""The log and the directory in PostgreSQL: `log` commits and reads, `schema` has the tables."""

"""A server's shard in PostgreSQL: `store` commits and reads, `schema` has the tables."""

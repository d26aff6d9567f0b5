"""A server's shard in PostgreSQL: `store` owns it, `spares` finds dead servers, `schema` has the tables."""

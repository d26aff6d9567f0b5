"""Solutions that a team would build in an afternoon: the peers of the product in `edn bench delivery`.

    postgres, postgres_program   subscriptions and an outbox in PostgreSQL, asyncpg, aiohttp
    redis, redis_program         jobs of arq in Redis, numpy, aiohttp
    sender                       composes, signs and posts notifications, for both
    database                     runs a database server that ends with the benchmark
    system                       what the benchmark expects of both

They guarantee less than the product: no order per address, no isolation of slow addresses, no dead letters,
no stable body per webhook-id, and a fixed set of subscriptions.
"""

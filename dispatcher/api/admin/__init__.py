"""Routes of operators: servers, keys, tuning, repartitions, routes, backup, clock, metrics."""

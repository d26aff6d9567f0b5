"""Routes of operators: servers, keys, tuning, repartitions, name bindings, backup, clock, metrics."""

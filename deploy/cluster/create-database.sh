#!/bin/sh
# Patroni runs it once, with the URL of the new cluster: creates the user and the database of the network.
# pg_monitor lets `edn status` and the metrics show how far the standbys are.
set -eu
psql "$1" -v ON_ERROR_STOP=1 <<SQL
CREATE ROLE edn LOGIN PASSWORD 'edn' IN ROLE pg_monitor;
CREATE DATABASE edn OWNER edn;
SQL

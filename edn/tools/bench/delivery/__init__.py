"""`edn bench delivery`: publish to arrival, beside a floor and two solutions that a team would build itself.

benchmark   the rounds of all systems
fairness    healthy addresses alone and beside bad ones
workload    subscriptions, events and the matches that must arrive
receiver    the process behind all addresses: records arrivals
load        publishes, waits for the arrivals and checks them
usage       CPU, memory and descriptors of processes
program     starts and ends processes
systems     the systems by name
network     the product under test
peers       the solutions on PostgreSQL and Redis
floor       the least that a POST costs in one Python process
results     medians, ratios and verdicts
report      tables
"""

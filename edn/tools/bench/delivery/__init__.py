"""`edn bench delivery`: publish to arrival, beside a floor and two solutions that a team would build itself.

benchmark   the rounds, and the result
workload    subscriptions, events and the matches that must arrive
receiver    the process behind all addresses: records arrivals
load        publishes, waits for the arrivals and checks them
usage       CPU, memory and descriptors of processes
program     starts and ends processes
network     the product under test
floor       the least that a POST costs in one Python process
report      tables and verdicts
"""

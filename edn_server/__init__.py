"""The process that hosts subscriptions: it matches the dispatcher's stream exactly and notifies.

    settings       what an operator can set
    database       the data folder: its lock, its format, its tables
    writer         the one thread that writes, and the transactions that it groups
    topic          one topic in memory: its matcher and its maximal rectangles
    hosting        what is hosted, in memory: topics, versions, intervals; `loading` rebuilds it
    storing        a store request becomes durable, inactive versions of subscriptions
    controls       what a control record does to the intervals
    stream         a frame becomes notifications, in one transaction
    outbox         the notifications that wait: how they are grouped, kept, composed and collected
    retry          when an attempt is made again (pure)
    delivery       one POST to a checked address
    notifier       a courier an address, in order
    registration   how the dispatcher learns of this server, and that it lives
    exchange       what the other servers host, and which of them should host a subscription
    receiving      the door for subscribers: what they ask goes on to the dispatcher
    node           all of these together
    app            the HTTP door; `python -m edn_server` opens it

It imports `edn` and `partitioning.online`, and nothing of the other services.
"""

"""The process that hosts subscriptions: it matches the dispatcher's stream exactly and notifies.

    config         settings
    database       the data folder: its lock, its format, its tables
    writer         the one thread that writes, and the transactions that it groups
    topic          one topic in memory: its matcher and its maximal rectangles
    hosting        what is hosted, in memory: topics, versions, intervals; `loading` rebuilds it
    storing        a store request becomes durable, inactive versions of subscriptions
    controls       what a control record does to the intervals; `holds`: what is kept and not sent yet
    stream         a frame becomes notifications, in one transaction; `repeats`: what another log told
    replaying      the past of a new subscription, likewise; `arriving`, `departing`: one that moves
    outbox         the notifications that wait: how they are grouped, kept, composed and collected
    parcels        which of them go out together; `composing`: what they tell; `recent` keeps what was just
                   written
    retry          when an attempt is made again (pure)
    breaker        how it is with an address: healthy, failing, disabled (pure); `health` keeps it
    slots          how attempts are shared between tenants and addresses
    resolver       names of sinks, asynchronously
    sinks          what can be notified, by scheme: `delivery` over http, `mail`, `soap`, `cloudevents`;
                   `streams`: what is read instead of sent
    notifier       a courier an address, in order; `posting`: one attempt
    deadletters    what was given up; `ended` drops what nobody waits for
    ending         who is told that a subscription has ended
    attempts       the last attempts of each address; `tally` counts
    evidence       what can be asked about all of that; `evidence_door` are its routes; `explaining`,
                   `journeys`: about one event; `metrics`, `timing`: for Prometheus
    registration   how the dispatcher learns of this server, and that it lives
    dispatchers    where they are; for calls, any that answers
    exchange       what the other servers host, and which of them should host a subscription
    receiving      the door for subscribers: what they ask goes on to the dispatcher
    node           all of these together
    app            the HTTP door; `python -m edn_server` opens it; `messages`: what the dispatcher calls

It imports `edn` and `partitioning.online`, and nothing of the other services.
"""

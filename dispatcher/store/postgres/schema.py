"""The dispatcher's tables in PostgreSQL, as migrations (`edn.runtime.postgres.schema`).

The directory is shared by the network. Tables with the prefix `log_` belong to one log each.
"""

from __future__ import annotations

_FIRST = """
CREATE TABLE sequences (name TEXT COLLATE "C" PRIMARY KEY, last BIGINT NOT NULL);
CREATE TABLE log_meta (
    key TEXT COLLATE "C" NOT NULL, value TEXT, log TEXT COLLATE "C" NOT NULL, PRIMARY KEY (log, key));
CREATE TABLE log_records (
    last BIGINT NOT NULL, count BIGINT NOT NULL, time BIGINT NOT NULL, topic BIGINT,
    server TEXT COLLATE "C", payload BYTEA NOT NULL, expires BIGINT,
    log TEXT COLLATE "C" NOT NULL, PRIMARY KEY (log, last));
-- compressing payloads costs more than it saves
ALTER TABLE log_records ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE INDEX log_records_passing ON log_records (log, last) WHERE expires IS NULL;
CREATE INDEX log_records_by_expiry ON log_records (log, expires) WHERE expires IS NOT NULL;
CREATE INDEX log_records_retained ON log_records (log, topic, last) WHERE expires IS NOT NULL;
CREATE INDEX log_records_by_server ON log_records (log, server, last) WHERE server IS NOT NULL;
CREATE TABLE log_replays (
    subscription TEXT COLLATE "C" NOT NULL, version BIGINT NOT NULL, server TEXT COLLATE "C" NOT NULL,
    topic BIGINT NOT NULL, filter TEXT, upto BIGINT NOT NULL, time BIGINT NOT NULL, since BIGINT,
    after BIGINT, log TEXT COLLATE "C" NOT NULL, PRIMARY KEY (log, subscription, version));
CREATE TABLE log_cursors (
    server TEXT COLLATE "C" NOT NULL, cursor BIGINT NOT NULL, log TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (log, server));
CREATE TABLE moves (
    subscription TEXT COLLATE "C" NOT NULL, version BIGINT NOT NULL, source TEXT COLLATE "C" NOT NULL,
    destination TEXT COLLATE "C" NOT NULL, keeping BIGINT NOT NULL, PRIMARY KEY (subscription, version));
CREATE INDEX moves_by_source ON moves (source);
CREATE TABLE repartitions (
    id BIGINT PRIMARY KEY, kind TEXT COLLATE "C" NOT NULL, state TEXT COLLATE "C" NOT NULL,
    server TEXT COLLATE "C", created BIGINT NOT NULL, began BIGINT, ended BIGINT,
    rate DOUBLE PRECISION NOT NULL, total BIGINT NOT NULL DEFAULT 0, moved BIGINT NOT NULL DEFAULT 0,
    skipped BIGINT NOT NULL DEFAULT 0, hit_ratio DOUBLE PRECISION, expected_hit_ratio DOUBLE PRECISION);
CREATE TABLE assignments (
    repartition BIGINT NOT NULL, subscription TEXT COLLATE "C" NOT NULL, server TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (repartition, subscription));
CREATE TABLE leaving (server TEXT COLLATE "C" PRIMARY KEY, state TEXT COLLATE "C" NOT NULL, cursor BIGINT);
CREATE TABLE event_ids (
    topic BIGINT NOT NULL, id TEXT COLLATE "C" NOT NULL, digest BYTEA NOT NULL, time BIGINT NOT NULL,
    PRIMARY KEY (topic, id));
CREATE INDEX event_ids_by_time ON event_ids (time);
CREATE TABLE topics (
    uid BIGINT PRIMARY KEY, tenant TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL, columns TEXT NOT NULL, attributes TEXT NOT NULL,
    engine TEXT COLLATE "C" NOT NULL, created BIGINT NOT NULL,
    availability DOUBLE PRECISION NOT NULL DEFAULT 0, chosen BIGINT NOT NULL DEFAULT 0,
    closed BIGINT NOT NULL DEFAULT 0, UNIQUE (tenant, name));
CREATE TABLE bindings (
    name TEXT COLLATE "C" PRIMARY KEY, servers TEXT, engine TEXT COLLATE "C", created BIGINT NOT NULL);
CREATE TABLE subscriptions (
    serial BIGINT PRIMARY KEY, id TEXT COLLATE "C" NOT NULL UNIQUE, version BIGINT NOT NULL,
    owner TEXT COLLATE "C" NOT NULL, topic BIGINT NOT NULL, filter TEXT COLLATE "C",
    attributes TEXT NOT NULL, url TEXT COLLATE "C" NOT NULL, recipient TEXT COLLATE "C", expires BIGINT,
    server TEXT COLLATE "C" NOT NULL, created BIGINT NOT NULL, location TEXT,
    ring TEXT COLLATE "C" NOT NULL DEFAULT '', paused BIGINT NOT NULL DEFAULT 0, subtree TEXT COLLATE "C",
    predicates BIGINT NOT NULL DEFAULT 0);
CREATE INDEX subscriptions_by_topic ON subscriptions (topic, serial);
CREATE INDEX subscriptions_by_owner ON subscriptions (owner, serial);
CREATE INDEX subscriptions_by_server ON subscriptions (server);
CREATE INDEX subscriptions_by_expiry ON subscriptions (expires) WHERE expires IS NOT NULL;
CREATE INDEX subscriptions_by_ring ON subscriptions (ring) WHERE ring != '';
CREATE INDEX subscriptions_by_subtree ON subscriptions (subtree) WHERE subtree IS NOT NULL;
CREATE TABLE rings (
    id TEXT COLLATE "C" PRIMARY KEY, tenant TEXT COLLATE "C" NOT NULL, owner TEXT COLLATE "C" NOT NULL,
    url TEXT COLLATE "C" NOT NULL, given TEXT COLLATE "C" NOT NULL, current TEXT NOT NULL, previous TEXT,
    until BIGINT NOT NULL, version BIGINT NOT NULL);
CREATE INDEX rings_by_url ON rings (tenant, owner, url, given);
CREATE TABLE keys (
    id TEXT COLLATE "C" PRIMARY KEY, digest BYTEA NOT NULL, name TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL, scopes TEXT NOT NULL, quota TEXT NOT NULL, created BIGINT NOT NULL,
    expires BIGINT);
CREATE TABLE servers (
    id TEXT COLLATE "C" PRIMARY KEY, url TEXT NOT NULL, key TEXT NOT NULL, epoch BIGINT NOT NULL,
    registered BIGINT NOT NULL);
-- bytes of retained events
CREATE TABLE retained (tenant TEXT COLLATE "C" PRIMARY KEY, bytes BIGINT NOT NULL);
CREATE FUNCTION count_retained(changed_topic BIGINT, change BIGINT) RETURNS VOID LANGUAGE SQL AS $$
    INSERT INTO retained SELECT tenant, change FROM topics WHERE uid = changed_topic
        ON CONFLICT (tenant) DO UPDATE SET bytes = retained.bytes + excluded.bytes
$$;
CREATE FUNCTION records_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM count_retained(NEW.topic, length(NEW.payload));
    ELSE
        PERFORM count_retained(OLD.topic, -length(OLD.payload));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER retained_more AFTER INSERT ON log_records FOR EACH ROW
    WHEN (NEW.expires IS NOT NULL) EXECUTE FUNCTION records_changed();
CREATE TRIGGER retained_less AFTER DELETE ON log_records FOR EACH ROW
    WHEN (OLD.expires IS NOT NULL) EXECUTE FUNCTION records_changed();
CREATE TRIGGER retained_ended AFTER UPDATE OF expires ON log_records FOR EACH ROW
    WHEN (OLD.expires IS NOT NULL AND NEW.expires IS NULL) EXECUTE FUNCTION records_changed();
"""

#: in order; a released one is never changed
MIGRATIONS = (_FIRST,)

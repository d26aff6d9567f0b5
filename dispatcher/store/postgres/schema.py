"""The dispatcher's tables in PostgreSQL, as migrations (`edn.runtime.postgres.schema`).

The directory is shared by the network. Tables with the prefix `log_` belong to one log each.

The row of `directory` is locked by whoever changes the directory, before the rows of the logs in `leases`, in
the order of their names.
"""

from __future__ import annotations

_FIRST = """
-- numbers of the last change, and of the last whose rows are deleted
CREATE TABLE directory (revision BIGINT NOT NULL, deleted BIGINT NOT NULL);
INSERT INTO directory VALUES (0, 0);
-- of all dispatchers: open, draining (another dispatcher forwards the rest) or retired
CREATE TABLE logs (
    log TEXT COLLATE "C" PRIMARY KEY, name TEXT COLLATE "C" NOT NULL, url TEXT,
    state TEXT COLLATE "C" NOT NULL, opened BIGINT NOT NULL);
CREATE TABLE changes (
    revision BIGINT NOT NULL, kind BIGINT NOT NULL, name TEXT COLLATE "C" NOT NULL,
    server TEXT COLLATE "C" NOT NULL, more BIGINT NOT NULL, epoch BIGINT, seq BIGINT);
CREATE INDEX changes_by_revision ON changes (revision);
CREATE TABLE sequences (name TEXT COLLATE "C" PRIMARY KEY, last BIGINT NOT NULL);
CREATE TABLE log_meta (
    key TEXT COLLATE "C" NOT NULL, value TEXT, log TEXT COLLATE "C" NOT NULL, PRIMARY KEY (log, key));
CREATE TABLE log_records (
    last BIGINT NOT NULL, count BIGINT NOT NULL, time BIGINT NOT NULL, topic BIGINT,
    server TEXT COLLATE "C", payload BYTEA NOT NULL, expires BIGINT,
    log TEXT COLLATE "C" NOT NULL, PRIMARY KEY (log, last));
-- compressing payloads costs more than it saves
ALTER TABLE log_records ALTER COLUMN payload SET STORAGE EXTERNAL;
-- the beginning of the log is deleted all the time
ALTER TABLE log_records SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0.1, toast.autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX log_records_passing ON log_records (log, last) WHERE expires IS NULL;
CREATE INDEX log_records_by_expiry ON log_records (log, expires) WHERE expires IS NOT NULL;
CREATE INDEX log_records_retained ON log_records (log, topic, last) WHERE expires IS NOT NULL;
CREATE INDEX log_records_by_server ON log_records (log, server, last) WHERE server IS NOT NULL;
CREATE VIEW records_of_all AS SELECT topic, expires, time FROM log_records;
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
    closed BIGINT NOT NULL DEFAULT 0, advertising TEXT COLLATE "C" NOT NULL DEFAULT 'off',
    advertised BIGINT NOT NULL DEFAULT 0, UNIQUE (tenant, name));
CREATE TABLE advertisements (
    serial BIGINT PRIMARY KEY, id TEXT COLLATE "C" NOT NULL UNIQUE, version BIGINT NOT NULL,
    topic BIGINT NOT NULL, publisher TEXT COLLATE "C" NOT NULL, advertisement TEXT NOT NULL, expires BIGINT,
    created BIGINT NOT NULL);
CREATE INDEX advertisements_by_topic ON advertisements (topic, publisher, serial);
CREATE INDEX advertisements_by_expiry ON advertisements (expires) WHERE expires IS NOT NULL;
CREATE TABLE bindings (
    name TEXT COLLATE "C" PRIMARY KEY, servers TEXT, engine TEXT COLLATE "C", created BIGINT NOT NULL);
CREATE TABLE subscriptions (
    serial BIGINT PRIMARY KEY, id TEXT COLLATE "C" NOT NULL UNIQUE, version BIGINT NOT NULL,
    owner TEXT COLLATE "C" NOT NULL, topic BIGINT NOT NULL, filter TEXT COLLATE "C",
    attributes TEXT NOT NULL, url TEXT COLLATE "C" NOT NULL, recipient TEXT COLLATE "C", expires BIGINT,
    server TEXT COLLATE "C" NOT NULL, created BIGINT NOT NULL, location TEXT,
    ring TEXT COLLATE "C" NOT NULL DEFAULT '', paused BIGINT NOT NULL DEFAULT 0, subtree TEXT COLLATE "C",
    predicates BIGINT NOT NULL DEFAULT 0, renewed BIGINT NOT NULL DEFAULT 0,
    settings TEXT COLLATE "C" NOT NULL DEFAULT '');
-- credentials of sinks, sealed, by the id of the settings
CREATE TABLE credentials (
    id TEXT COLLATE "C" PRIMARY KEY, sealed BYTEA NOT NULL, created BIGINT NOT NULL);
CREATE INDEX subscriptions_with_settings ON subscriptions (serial) WHERE settings != '';
CREATE INDEX subscriptions_by_topic ON subscriptions (topic, serial);
CREATE INDEX subscriptions_by_owner ON subscriptions (owner, serial);
CREATE INDEX subscriptions_by_server ON subscriptions (server);
CREATE INDEX subscriptions_by_expiry ON subscriptions (expires) WHERE expires IS NOT NULL;
CREATE INDEX subscriptions_by_ring ON subscriptions (ring) WHERE ring != '';
CREATE INDEX subscriptions_by_subtree ON subscriptions (subtree) WHERE subtree IS NOT NULL;
CREATE TABLE rings (
    id TEXT COLLATE "C" PRIMARY KEY, tenant TEXT COLLATE "C" NOT NULL, owner TEXT COLLATE "C" NOT NULL,
    url TEXT COLLATE "C" NOT NULL, given TEXT COLLATE "C" NOT NULL, current BYTEA NOT NULL,
    previous BYTEA, until BIGINT NOT NULL, version BIGINT NOT NULL);
CREATE INDEX rings_by_url ON rings (tenant, owner, url, given);
CREATE TABLE keys (
    id TEXT COLLATE "C" PRIMARY KEY, digest BYTEA NOT NULL, name TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL, scopes TEXT NOT NULL, quota TEXT NOT NULL, created BIGINT NOT NULL,
    expires BIGINT);
CREATE TABLE sources (
    id TEXT COLLATE "C" PRIMARY KEY, tenant TEXT COLLATE "C" NOT NULL, topic TEXT COLLATE "C" NOT NULL,
    url BYTEA NOT NULL, shown TEXT NOT NULL, consumer TEXT NOT NULL, api_key TEXT NOT NULL,
    owner TEXT NOT NULL, quota TEXT NOT NULL, created BIGINT NOT NULL,
    runner TEXT COLLATE "C" NOT NULL DEFAULT '', until BIGINT NOT NULL DEFAULT 0);
CREATE TABLE source_letters (
    id BIGINT PRIMARY KEY, source TEXT COLLATE "C" NOT NULL, message TEXT, reason TEXT NOT NULL,
    body BYTEA NOT NULL, size BIGINT NOT NULL, time BIGINT NOT NULL);
CREATE INDEX source_letters_by_source ON source_letters (source, id);
CREATE TABLE servers (
    id TEXT COLLATE "C" PRIMARY KEY, url TEXT NOT NULL, key TEXT NOT NULL, epoch BIGINT NOT NULL,
    registered BIGINT NOT NULL);
-- bytes of retained events
CREATE TABLE log_retained (
    tenant TEXT COLLATE "C" NOT NULL, bytes BIGINT NOT NULL, log TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (log, tenant));
CREATE VIEW retained_by_all AS SELECT tenant, sum(bytes)::BIGINT AS bytes FROM log_retained GROUP BY tenant;
CREATE FUNCTION count_retained(changed_log TEXT, changed_topic BIGINT, change BIGINT) RETURNS VOID
    LANGUAGE SQL AS $$
    INSERT INTO log_retained SELECT tenant, change, changed_log FROM topics WHERE uid = changed_topic
        ON CONFLICT (log, tenant) DO UPDATE SET bytes = log_retained.bytes + excluded.bytes
$$;
CREATE FUNCTION records_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM count_retained(NEW.log, NEW.topic, length(NEW.payload));
    ELSE
        PERFORM count_retained(OLD.log, OLD.topic, -length(OLD.payload));
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
_SEQUENCES = """
CREATE TABLE sequence_topics (
    subscription TEXT COLLATE "C" NOT NULL, topic BIGINT NOT NULL, attributes TEXT NOT NULL,
    PRIMARY KEY (subscription, topic));
CREATE INDEX sequence_topics_by_topic ON sequence_topics (topic);
"""

MIGRATIONS = (_FIRST, _SEQUENCES)

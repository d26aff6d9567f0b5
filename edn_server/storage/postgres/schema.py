"""The tables of servers in PostgreSQL, as migrations (`edn.runtime.postgres.schema`).

Every table belongs to shards, one per server. `edn_server.storage.database` describes the tables.
"""

from __future__ import annotations

from edn.model.namespace import OWNED

_FIRST = f"""
CREATE TABLE shard_sequences (
    name TEXT COLLATE "C" NOT NULL, last BIGINT NOT NULL, shard TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, name));
CREATE TABLE shard_meta (
    name TEXT COLLATE "C" NOT NULL, value TEXT, shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, name));
CREATE TABLE shard_secrets (
    name TEXT COLLATE "C" NOT NULL, sealed BYTEA NOT NULL, shard TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, name));
CREATE TABLE shard_topics (
    uid BIGINT NOT NULL, tenant TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL,
    columns TEXT NOT NULL, engine TEXT NOT NULL, shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, uid));
CREATE TABLE shard_versions (
    number BIGINT NOT NULL, id TEXT COLLATE "C" NOT NULL, version BIGINT NOT NULL, owner TEXT NOT NULL,
    topic BIGINT NOT NULL, filter TEXT NOT NULL, address TEXT COLLATE "C" NOT NULL, recipient TEXT,
    expires BIGINT, log TEXT COLLATE "C" NOT NULL, incarnation BIGINT NOT NULL, width BIGINT NOT NULL,
    rects BYTEA NOT NULL, over BIGINT, ring TEXT COLLATE "C" NOT NULL, moved BIGINT NOT NULL DEFAULT 0,
    settings TEXT COLLATE "C" NOT NULL DEFAULT '',
    shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, number));
CREATE UNIQUE INDEX shard_versions_living ON shard_versions (shard, id, version) WHERE over IS NULL;
CREATE INDEX shard_versions_over ON shard_versions (shard, over) WHERE over IS NOT NULL;
CREATE INDEX shard_versions_by_id ON shard_versions (shard, id);
CREATE TABLE shard_intervals (
    number BIGINT NOT NULL, log TEXT COLLATE "C" NOT NULL, since BIGINT, until BIGINT, expires BIGINT,
    shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, number, log));
CREATE TABLE shard_logs (
    log TEXT COLLATE "C" NOT NULL, incarnation BIGINT NOT NULL, cursor BIGINT, joined BIGINT,
    retired BIGINT NOT NULL DEFAULT 0, shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, log));
CREATE TABLE shard_replays (
    number BIGINT NOT NULL, source TEXT COLLATE "C" NOT NULL CHECK (source IN ('log', 'server')),
    log TEXT COLLATE "C" NOT NULL, position BIGINT NOT NULL, kept BIGINT NOT NULL DEFAULT 0,
    shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, number, source, log));
CREATE TABLE shard_pauses (
    id TEXT COLLATE "C" NOT NULL, log TEXT COLLATE "C" NOT NULL, revision BIGINT NOT NULL,
    shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, id, log));
CREATE TABLE shard_events (
    key BIGINT NOT NULL, payloads BYTEA NOT NULL, shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, key));
ALTER TABLE shard_events ALTER COLUMN payloads SET STORAGE EXTERNAL;
CREATE TABLE shard_outbox (
    id BIGINT NOT NULL, address TEXT COLLATE "C", subscription TEXT COLLATE "C",
    state TEXT COLLATE "C" NOT NULL DEFAULT 'ready' CHECK (state IN ('ready', 'buffered', 'waiting')),
    phase TEXT COLLATE "C" NOT NULL DEFAULT 'live' CHECK (phase IN ('history', 'live')),
    frame_id BIGINT, events BIGINT NOT NULL, composition BYTEA, body BYTEA,
    created BIGINT NOT NULL DEFAULT 0, doubt BIGINT NOT NULL DEFAULT 0, bytes BIGINT NOT NULL DEFAULT 0,
    attempts BIGINT NOT NULL DEFAULT 0, due BIGINT NOT NULL DEFAULT 0,
    shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, id),
    CHECK ((address IS NOT NULL) = (state = 'ready')),
    CHECK ((frame_id IS NULL) = (composition IS NULL) AND (frame_id IS NULL) = (body IS NOT NULL)));
ALTER TABLE shard_outbox ALTER COLUMN composition SET STORAGE EXTERNAL;
ALTER TABLE shard_outbox ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX shard_outbox_address ON shard_outbox (shard, address, id) WHERE address IS NOT NULL;
CREATE INDEX shard_outbox_subscription ON shard_outbox (shard, subscription, state, phase, id)
    WHERE subscription IS NOT NULL;
CREATE INDEX shard_outbox_streams ON shard_outbox (shard, created)
    WHERE subscription IS NOT NULL AND state = 'ready';
CREATE INDEX shard_outbox_doubt ON shard_outbox (shard, address, id) WHERE doubt != 0;
CREATE INDEX shard_outbox_kept_doubt ON shard_outbox (shard, subscription, id)
    WHERE address IS NULL AND doubt != 0;
CREATE INDEX shard_outbox_aside ON shard_outbox (shard, address, id) WHERE attempts > 0;
CREATE INDEX shard_outbox_asked ON shard_outbox (shard, doubt) WHERE doubt > 0;
CREATE INDEX shard_outbox_frame ON shard_outbox (shard, frame_id) WHERE frame_id IS NOT NULL;
-- rows live for a moment: dead ones must go before the tables grow, and plans must know that they are small
ALTER TABLE shard_outbox SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE shard_events SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE shard_sequences SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
ALTER TABLE shard_logs SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE TABLE shard_stream_marks (
    address TEXT COLLATE "C" NOT NULL, dropped BIGINT NOT NULL DEFAULT 0, passed BIGINT NOT NULL DEFAULT 0,
    shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, address));
CREATE TABLE shard_batches (
    id BIGINT NOT NULL, members BYTEA NOT NULL, shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, id));
CREATE TABLE shard_rings (
    id TEXT COLLATE "C" NOT NULL, current BYTEA NOT NULL, previous BYTEA, until BIGINT NOT NULL,
    version BIGINT NOT NULL, shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, id));
CREATE TABLE shard_sink_settings (
    id TEXT COLLATE "C" NOT NULL, settings TEXT NOT NULL, credentials BYTEA,
    shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, id));
CREATE TABLE shard_health (
    address TEXT COLLATE "C" NOT NULL, health BYTEA NOT NULL, shard TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, address));
CREATE TABLE shard_attempts (
    address TEXT COLLATE "C" NOT NULL, newest BIGINT NOT NULL, attempts BYTEA NOT NULL,
    shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, address));
CREATE INDEX shard_attempts_newest ON shard_attempts (shard, newest);
CREATE TABLE shard_consents (
    url TEXT COLLATE "C" NOT NULL, standing BYTEA NOT NULL, shard TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, url));
CREATE TABLE shard_tallies (
    page BIGINT NOT NULL, counts BYTEA NOT NULL, shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, page));
CREATE TABLE shard_dead_letters (
    id BIGINT NOT NULL, address TEXT COLLATE "C" NOT NULL, died BIGINT NOT NULL, created BIGINT NOT NULL,
    attempts BIGINT NOT NULL, status BIGINT, reason TEXT NOT NULL, events BIGINT NOT NULL,
    named BYTEA NOT NULL, body BYTEA NOT NULL, shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, id));
ALTER TABLE shard_dead_letters ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX shard_dead_letters_died ON shard_dead_letters (shard, died, id);
CREATE INDEX shard_dead_letters_tenant
    ON shard_dead_letters (shard, substr(address, 1, instr(address, '/')), died, id);
CREATE TABLE shard_names (
    name BIGINT GENERATED BY DEFAULT AS IDENTITY, subscription TEXT COLLATE "C" NOT NULL,
    shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, name), UNIQUE (shard, subscription));
CREATE TABLE shard_dead_names (
    name BIGINT NOT NULL, died BIGINT NOT NULL, letter BIGINT NOT NULL, shard TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, name, died, letter));
CREATE TABLE shard_kept (
    subscription TEXT COLLATE "C" NOT NULL, kind TEXT COLLATE "C" NOT NULL, tenant TEXT COLLATE "C" NOT NULL,
    events BIGINT NOT NULL, bytes BIGINT NOT NULL, shard TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, subscription, kind));
CREATE INDEX shard_kept_largest ON shard_kept (shard, kind, tenant, bytes);
CREATE TABLE shard_usage (
    kind TEXT COLLATE "C" NOT NULL, tenant TEXT COLLATE "C" NOT NULL, bytes BIGINT NOT NULL,
    shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, kind, tenant));
CREATE TABLE shard_drops (
    subscription TEXT COLLATE "C" NOT NULL, kind TEXT COLLATE "C" NOT NULL, events BIGINT NOT NULL,
    last BIGINT NOT NULL, shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, subscription, kind));
-- the counters of `edn_server.storage.usage`
CREATE FUNCTION count_usage(shard_ TEXT, kind_ TEXT, tenant_ TEXT, change BIGINT) RETURNS VOID
    LANGUAGE SQL AS $$
    INSERT INTO shard_usage (kind, tenant, bytes, shard) VALUES (kind_, tenant_, change, shard_)
        ON CONFLICT (shard, kind, tenant) DO UPDATE SET bytes = shard_usage.bytes + excluded.bytes
$$;
CREATE FUNCTION count_kept(counted shard_outbox, sign BIGINT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    kind_ TEXT := CASE counted.state WHEN 'ready' THEN 'stream' WHEN 'waiting' THEN 'waiting'
        ELSE 'paused' END;
    tenant_ TEXT := substr(counted.subscription, 1, greatest(0, strpos(counted.subscription, '{OWNED}') - 1));
BEGIN
    INSERT INTO shard_kept (subscription, kind, tenant, events, bytes, shard) VALUES
        (counted.subscription, kind_, tenant_, sign * counted.events, sign * counted.bytes, counted.shard)
        ON CONFLICT (shard, subscription, kind) DO UPDATE SET
            events = shard_kept.events + excluded.events, bytes = shard_kept.bytes + excluded.bytes;
    DELETE FROM shard_kept WHERE shard = counted.shard AND subscription = counted.subscription
        AND events <= 0 AND bytes <= 0;
    PERFORM count_usage(counted.shard, kind_, tenant_, sign * counted.bytes);
END $$;
CREATE FUNCTION outbox_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP != 'INSERT' THEN PERFORM count_kept(OLD, -1); END IF;
    IF TG_OP != 'DELETE' THEN PERFORM count_kept(NEW, 1); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER kept_more AFTER INSERT ON shard_outbox FOR EACH ROW
    WHEN (NEW.bytes > 0) EXECUTE FUNCTION outbox_changed();
CREATE TRIGGER kept_less AFTER DELETE ON shard_outbox FOR EACH ROW
    WHEN (OLD.bytes > 0) EXECUTE FUNCTION outbox_changed();
CREATE TRIGGER kept_changed AFTER UPDATE OF state, events ON shard_outbox FOR EACH ROW
    WHEN (OLD.bytes > 0) EXECUTE FUNCTION outbox_changed();
CREATE FUNCTION dead_letters_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM count_usage(NEW.shard, 'dead', substr(NEW.address, 1, strpos(NEW.address, '/') - 1),
            length(NEW.body));
    ELSE
        PERFORM count_usage(OLD.shard, 'dead', substr(OLD.address, 1, strpos(OLD.address, '/') - 1),
            -length(OLD.body));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER dead_more AFTER INSERT ON shard_dead_letters FOR EACH ROW
    EXECUTE FUNCTION dead_letters_changed();
CREATE TRIGGER dead_less AFTER DELETE ON shard_dead_letters FOR EACH ROW
    EXECUTE FUNCTION dead_letters_changed();
"""

_SEQUENCES = """
CREATE TABLE shard_steps (
    number BIGINT NOT NULL, role BIGINT NOT NULL, topic BIGINT NOT NULL, width BIGINT NOT NULL,
    rects BYTEA NOT NULL, shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, number, role));
CREATE TABLE shard_half_matches (
    number BIGINT NOT NULL, by_key BYTEA NOT NULL, slot BIGINT NOT NULL, data BYTEA NOT NULL,
    shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, number, by_key, slot));
CREATE TABLE shard_candidates (
    number BIGINT NOT NULL, serial BIGINT NOT NULL, data BYTEA NOT NULL, shard TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (shard, number, serial));
CREATE TABLE shard_monitors (
    number BIGINT NOT NULL, awaiting BIGINT NOT NULL, position BIGINT NOT NULL, late BIGINT NOT NULL,
    dropped BIGINT NOT NULL, shard TEXT COLLATE "C" NOT NULL, PRIMARY KEY (shard, number));
"""

#: in order; a released one is never changed
MIGRATIONS = (_FIRST, _SEQUENCES)

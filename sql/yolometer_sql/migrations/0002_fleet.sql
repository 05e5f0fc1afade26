-- The tables of a fleet: samples of GPUs, what became of messages on their way, and what each run used of each GPU.
--
-- As in 0001: a table keeps every version it was given until a merge, the views read it as it is now, with FINAL and without
-- deleted rows. A table with partitions has its ts in its identity, so a row never changes its partition.
-- A condition on the ts of `gpu` reads every granule, as its key begins with the five minutes: add the same condition on
-- toStartOfFiveMinutes(ts) where speed matters.
-- This file is frozen: a change is a new file with the next number. Every statement can run again.

-- One sample of one GPU. Its identity is (node, gpu_uuid, ts): the same sample sent again replaces itself, and so does one
-- whose run became known later. Kept for 14 days; the tables `usage_...` remember what it came to.
CREATE TABLE IF NOT EXISTS gpu
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    period_s Float64 CODEC(ZSTD(1)),
    gpu_uuid LowCardinality(String) CODEC(ZSTD(1)),
    gpu_model LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    run_id LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    user LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    team LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    attribution_source LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    gpu_util_ratio Nullable(Float32) CODEC(Delta(4), ZSTD(1)),
    memory_used_bytes Nullable(UInt64) CODEC(Delta(8), ZSTD(1)),
    memory_total_bytes Nullable(UInt64) CODEC(Delta(8), ZSTD(1)),
    power_w Nullable(Float32) CODEC(Delta(4), ZSTD(1)),
    energy_j Nullable(Float64) CODEC(Delta(8), ZSTD(1)),
    sm_clock_mhz Nullable(Float32) CODEC(Delta(4), ZSTD(1)),
    memory_clock_mhz Nullable(Float32) CODEC(Delta(4), ZSTD(1)),
    temperature_c Nullable(Float32) CODEC(Delta(4), ZSTD(1)),
    clock_event_reasons Nullable(UInt64) CODEC(ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'gpu', node, gpu_uuid, toString(toUnixTimestamp64Milli(ts))))))
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(ts)
ORDER BY (toStartOfFiveMinutes(ts), node, gpu_uuid, toUnixTimestamp64Milli(ts))
TTL toDateTime(ts) + INTERVAL 14 DAY
SETTINGS ttl_only_drop_parts = 1, fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW gpus AS SELECT *, event_id FROM gpu FINAL;

-- Messages of a lane that an agent could not keep, numbers `seq` to `last_seq`.
CREATE TABLE IF NOT EXISTS loss
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    last_seq UInt64 CODEC(ZSTD(1)),
    messages UInt64 CODEC(ZSTD(1)),
    size_bytes UInt64 CODEC(ZSTD(1)),
    reason LowCardinality(String) CODEC(ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'loss', node, source, toString(seq), reason))))
)
ENGINE = ReplacingMergeTree
ORDER BY (node, source, seq, reason)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW losses AS SELECT *, event_id FROM loss FINAL;

-- A message, or one event of it (`index`, -1 is the whole message), that cannot be understood or stored, with its bytes.
CREATE TABLE IF NOT EXISTS dead
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    from_topic LowCardinality(String) CODEC(ZSTD(1)),
    from_partition UInt64 CODEC(ZSTD(1)),
    from_offset UInt64 CODEC(Delta(8), ZSTD(1)),
    `index` Int64 CODEC(ZSTD(1)),
    reason LowCardinality(String) CODEC(ZSTD(1)),
    detail String CODEC(ZSTD(3)),
    raw_key String CODEC(ZSTD(3)),
    raw String CODEC(ZSTD(3)),
    digest String CODEC(ZSTD(1)),
    version UInt64 CODEC(ZSTD(1)),
    retried_ts Nullable(DateTime64(3, 'UTC')) CODEC(ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'dead', from_topic, toString(from_partition), toString(from_offset), toString(`index`), digest))))
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (from_topic, from_partition, from_offset, `index`, digest)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW dead_letters AS SELECT *, event_id FROM dead FINAL;

-- A message of an agent as it arrived: by `seq` in the lane `source` of the agent gaps are found. Kept for 14 days.
CREATE TABLE IF NOT EXISTS message
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    from_topic LowCardinality(String) CODEC(ZSTD(1)),
    from_partition UInt64 CODEC(ZSTD(1)),
    from_offset UInt64 CODEC(Delta(8), ZSTD(1)),
    events UInt64 CODEC(ZSTD(1)),
    rows UInt64 CODEC(ZSTD(1)),
    size_bytes UInt64 CODEC(ZSTD(1)),
    first_ts Nullable(DateTime64(3, 'UTC')) CODEC(Delta(8), ZSTD(1)),
    last_ts Nullable(DateTime64(3, 'UTC')) CODEC(Delta(8), ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'message', node, source, toString(seq)))))
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(ts)
ORDER BY (node, source, seq)
TTL toDateTime(ts) + INTERVAL 14 DAY
SETTINGS ttl_only_drop_parts = 1, fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW messages AS SELECT *, event_id FROM message FINAL;

-- Samples of a node's meter in one hour: how many came and how many there should be.
CREATE TABLE IF NOT EXISTS coverage
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    version UInt64 CODEC(Delta(8), ZSTD(1)),
    samples UInt64 CODEC(ZSTD(1)),
    samples_expected UInt64 CODEC(ZSTD(1)),
    messages UInt64 CODEC(ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'coverage', node, source, toString(toUnixTimestamp64Milli(ts))))))
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toYYYYMM(ts)
ORDER BY (node, source, ts)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW coverages AS SELECT *, event_id FROM coverage FINAL;

-- What one GPU did for one run and team in the minute that begins at `ts`; recomputed from `gpu` when one of its samples came.
-- Every column can be added up again: sums and counts of the known values (their quotient is the mean), maxima, and
-- `clock_event_reasons` as the bits that were seen. `energy_j` is power x time over the `energy_s` seconds whose power is
-- known. The key takes an unknown run or team for an empty one. Kept for 90 days.
CREATE TABLE IF NOT EXISTS usage_minute
(
    ts DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    gpu_uuid LowCardinality(String) CODEC(ZSTD(1)),
    run_id LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    team LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    user LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    gpu_model LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    first_ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    last_ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    samples UInt64 CODEC(ZSTD(1)),
    gpu_seconds Float64 CODEC(ZSTD(1)),
    gpu_util_ratio_sum Nullable(Float64) CODEC(ZSTD(1)),
    gpu_util_ratio_samples UInt64 CODEC(ZSTD(1)),
    gpu_util_ratio_max Nullable(Float32) CODEC(ZSTD(1)),
    memory_used_bytes_sum Nullable(UInt64) CODEC(ZSTD(1)),
    memory_used_bytes_samples UInt64 CODEC(ZSTD(1)),
    memory_used_bytes_max Nullable(UInt64) CODEC(ZSTD(1)),
    memory_total_bytes_max Nullable(UInt64) CODEC(ZSTD(1)),
    power_w_sum Nullable(Float64) CODEC(ZSTD(1)),
    power_w_samples UInt64 CODEC(ZSTD(1)),
    power_w_max Nullable(Float32) CODEC(ZSTD(1)),
    energy_j Nullable(Float64) CODEC(ZSTD(1)),
    energy_s Float64 CODEC(ZSTD(1)),
    temperature_c_max Nullable(Float32) CODEC(ZSTD(1)),
    clock_event_reasons Nullable(UInt64) CODEC(ZSTD(1)),
    version UInt64 CODEC(Delta(8), ZSTD(1)),
    is_deleted UInt8 CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version, is_deleted)
PARTITION BY toDate(ts)
ORDER BY (ts, node, gpu_uuid, ifNull(run_id, ''), ifNull(team, ''))
TTL ts + INTERVAL 90 DAY
SETTINGS ttl_only_drop_parts = 1, fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW usage_minutes AS SELECT * FROM usage_minute FINAL WHERE is_deleted = 0;

-- The same for the hour that begins at `ts`; recomputed from `usage_minute`.
CREATE TABLE IF NOT EXISTS usage_hour AS usage_minute
ENGINE = ReplacingMergeTree(version, is_deleted)
PARTITION BY toYYYYMM(ts)
ORDER BY (ts, node, gpu_uuid, ifNull(run_id, ''), ifNull(team, ''))
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW usage_hours AS SELECT * FROM usage_hour FINAL WHERE is_deleted = 0;

-- The same for the day (UTC) that begins at `ts`; recomputed from `usage_hour`.
CREATE TABLE IF NOT EXISTS usage_day AS usage_minute
ENGINE = ReplacingMergeTree(version, is_deleted)
PARTITION BY toYYYYMM(ts)
ORDER BY (ts, node, gpu_uuid, ifNull(run_id, ''), ifNull(team, ''))
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW usage_days AS SELECT * FROM usage_day FINAL WHERE is_deleted = 0;

-- Windows of `window_s` seconds whose `usage_...` rows must be made again: those that were touched after they were last
-- computed. `version` is the time of that in microseconds since 1970 by the clock of the server; the latest of each holds, so
-- the same may be said twice, late, and by several sinks.
CREATE TABLE IF NOT EXISTS dirty_window
(
    window_s UInt32 CODEC(ZSTD(1)),
    ts DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    computed Bool CODEC(ZSTD(1)),
    version UInt64 CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (window_s, ts, computed)
TTL ts + INTERVAL 30 DAY
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW dirty_windows AS
SELECT window_s, ts, maxIf(version, NOT computed) AS touched_us, maxIf(version, computed) AS computed_us
FROM dirty_window GROUP BY window_s, ts HAVING touched_us > computed_us;

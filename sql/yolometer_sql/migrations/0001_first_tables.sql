-- The first tables: one per event class, columns = fields of the event, and one view per table that reads it as it is now.
--
-- A table keeps every version it was given until a merge; read the views, they hold one row per identity and no deleted
-- rows. The identity of a fact is (place, source, seq), of a run its run_id, of an epoch (run_id, attempt, epoch, take),
-- of a rate (node, run_id, ts, window_s). The order key holds the whole identity, so that rows that differ in it never
-- replace one another. `event_id` is computed from the identity when it is read, the same as Event.event_id; `SELECT *` of a
-- table leaves it out, the views show it. Only `rate` has partitions: its ts is part of the identity and so
-- never changes for a key, which a partition must not. Unknown is NULL, never 0. Times are UTC with milliseconds.
-- An insert is on the disk when it returns (fsync), and merged parts are before their sources go.
-- This file is frozen: a change is a new file with the next number. Every statement can run again.

-- What a source says about the training as a whole. Later settings of a session complete earlier ones.
CREATE TABLE IF NOT EXISTS setting
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    place LowCardinality(String) CODEC(ZSTD(1)),
    session UInt64 CODEC(ZSTD(1)),
    role LowCardinality(String) CODEC(ZSTD(1)),
    framework LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    framework_version LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    task LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    model LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    height_px Nullable(Int64) CODEC(ZSTD(1)),
    width_px Nullable(Int64) CODEC(ZSTD(1)),
    batch Nullable(Int64) CODEC(ZSTD(1)),
    epochs_planned Nullable(Int64) CODEC(ZSTD(1)),
    iterations_planned Nullable(Int64) CODEC(ZSTD(1)),
    images_per_epoch Nullable(Int64) CODEC(ZSTD(1)),
    val_images Nullable(Int64) CODEC(ZSTD(1)),
    fraction Nullable(Float64) CODEC(ZSTD(1)),
    save_dir Nullable(String) CODEC(ZSTD(1)),
    name Nullable(String) CODEC(ZSTD(1)),
    params Nullable(Int64) CODEC(ZSTD(1)),
    gflops Nullable(Float64) CODEC(ZSTD(1)),
    optimizer LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    precision LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    gpu_model LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    gpus Nullable(Int64) CODEC(ZSTD(1)),
    seed Nullable(Int64) CODEC(ZSTD(1)),
    rect Nullable(Bool) CODEC(ZSTD(1)),
    multi_scale Nullable(Bool) CODEC(ZSTD(1)),
    time_budget Nullable(Bool) CODEC(ZSTD(1)),
    resumed Nullable(Bool) CODEC(ZSTD(1)),
    resume_epoch Nullable(Int64) CODEC(ZSTD(1)),
    started Nullable(Bool) CODEC(ZSTD(1)),
    end_line Nullable(Bool) CODEC(ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'setting', place, source, toString(seq)))))
)
ENGINE = ReplacingMergeTree
ORDER BY (place, source, seq, node)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW settings AS SELECT *, event_id FROM setting FINAL;

-- How far an epoch (or a run without epochs) has come. `iterations_done == iterations_total` is a complete epoch.
CREATE TABLE IF NOT EXISTS progress
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    place LowCardinality(String) CODEC(ZSTD(1)),
    session UInt64 CODEC(ZSTD(1)),
    epoch Nullable(Int64) CODEC(ZSTD(1)),
    take Int64 CODEC(ZSTD(1)),
    epochs_total Nullable(Int64) CODEC(ZSTD(1)),
    iterations_done UInt64 CODEC(ZSTD(1)),
    iterations_total Nullable(Int64) CODEC(ZSTD(1)),
    images Nullable(Int64) CODEC(ZSTD(1)),
    height_px Nullable(Int64) CODEC(ZSTD(1)),
    width_px Nullable(Int64) CODEC(ZSTD(1)),
    pixels_mean_px Nullable(Float64) CODEC(ZSTD(1)),
    losses Array(Nullable(Float64)) CODEC(ZSTD(1)),
    gpu_memory_bytes Nullable(Int64) CODEC(ZSTD(1)),
    images_per_s Nullable(Float64) CODEC(ZSTD(1)),
    train_s Nullable(Float64) CODEC(ZSTD(1)),
    resolution_s Nullable(Float64) CODEC(ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'progress', place, source, toString(seq)))))
)
ENGINE = ReplacingMergeTree
ORDER BY (place, source, seq, node)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW progresses AS SELECT *, event_id FROM progress FINAL;

-- A validation after an epoch. Metrics are ratios from 0 to 1; null where the source has none.
CREATE TABLE IF NOT EXISTS evaluation
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    place LowCardinality(String) CODEC(ZSTD(1)),
    session UInt64 CODEC(ZSTD(1)),
    epoch Nullable(Int64) CODEC(ZSTD(1)),
    take Int64 CODEC(ZSTD(1)),
    images Nullable(Int64) CODEC(ZSTD(1)),
    map50 Nullable(Float64) CODEC(ZSTD(1)),
    map50_95 Nullable(Float64) CODEC(ZSTD(1)),
    top1 Nullable(Float64) CODEC(ZSTD(1)),
    exact Nullable(Bool) CODEC(ZSTD(1)),
    val_s Nullable(Float64) CODEC(ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'evaluation', place, source, toString(seq)))))
)
ENGINE = ReplacingMergeTree
ORDER BY (place, source, seq, node)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW evaluations AS SELECT *, event_id FROM evaluation FINAL;

-- A row of results.csv or results.txt. `time_s` is seconds since the training loop of that process began.
CREATE TABLE IF NOT EXISTS result_row
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    place LowCardinality(String) CODEC(ZSTD(1)),
    session UInt64 CODEC(ZSTD(1)),
    epoch Int64 CODEC(ZSTD(1)),
    time_s Nullable(Float64) CODEC(ZSTD(1)),
    losses Array(Nullable(Float64)) CODEC(ZSTD(1)),
    map50 Nullable(Float64) CODEC(ZSTD(1)),
    map50_95 Nullable(Float64) CODEC(ZSTD(1)),
    top1 Nullable(Float64) CODEC(ZSTD(1)),
    gpu_memory_bytes Nullable(Int64) CODEC(ZSTD(1)),
    width_px Nullable(Int64) CODEC(ZSTD(1)),
    epochs_total Nullable(Int64) CODEC(ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'result_row', place, source, toString(seq)))))
)
ENGINE = ReplacingMergeTree
ORDER BY (place, source, seq, node)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW result_rows AS SELECT *, event_id FROM result_row FINAL;

-- Something that changes what the epochs mean, or ends the session.
CREATE TABLE IF NOT EXISTS incident
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    place LowCardinality(String) CODEC(ZSTD(1)),
    session UInt64 CODEC(ZSTD(1)),
    epoch Nullable(Int64) CODEC(ZSTD(1)),
    take Int64 CODEC(ZSTD(1)),
    what LowCardinality(String) CODEC(ZSTD(1)),
    batch Nullable(Int64) CODEC(ZSTD(1)),
    best_epoch Nullable(Int64) CODEC(ZSTD(1)),
    epochs_completed Nullable(Int64) CODEC(ZSTD(1)),
    loop_s Nullable(Float64) CODEC(ZSTD(1)),
    resolution_s Nullable(Float64) CODEC(ZSTD(1)),
    text Nullable(String) CODEC(ZSTD(3)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'incident', place, source, toString(seq)))))
)
ENGINE = ReplacingMergeTree
ORDER BY (place, source, seq, node)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW incidents AS SELECT *, event_id FROM incident FINAL;

-- What the agent knows of a source itself: its role, its size, and whether a process still writes it (null: cannot tell).
CREATE TABLE IF NOT EXISTS source_state
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    place LowCardinality(String) CODEC(ZSTD(1)),
    session UInt64 CODEC(ZSTD(1)),
    role LowCardinality(String) CODEC(ZSTD(1)),
    format LowCardinality(String) CODEC(ZSTD(1)),
    path String CODEC(ZSTD(1)),
    size_bytes UInt64 CODEC(ZSTD(1)),
    open_for_writing Nullable(Bool) CODEC(ZSTD(1)),
    digest Nullable(String) CODEC(ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'source_state', place, source, toString(seq)))))
)
ENGINE = ReplacingMergeTree
ORDER BY (place, source, seq, node)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW source_states AS SELECT *, event_id FROM source_state FINAL;

-- One training from first epoch to last. The fields of `yolometer replay --json`, and a few more. See docs/words.md.
CREATE TABLE IF NOT EXISTS run
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    run_id LowCardinality(String) CODEC(ZSTD(1)),
    version UInt64 CODEC(Delta(8), ZSTD(1)),
    is_deleted UInt8 CODEC(ZSTD(1)),
    place LowCardinality(String) CODEC(ZSTD(1)),
    name Nullable(String) CODEC(ZSTD(1)),
    framework LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    framework_version LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    task LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    model LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    imgsz Nullable(Int64) CODEC(ZSTD(1)),
    batch Nullable(Int64) CODEC(ZSTD(1)),
    epochs_planned Nullable(Int64) CODEC(ZSTD(1)),
    epochs_done Nullable(Int64) CODEC(ZSTD(1)),
    attempts Nullable(Int64) CODEC(ZSTD(1)),
    status LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    images_per_epoch Nullable(Int64) CODEC(ZSTD(1)),
    images Nullable(Int64) CODEC(ZSTD(1)),
    tokens_mtok Nullable(Float64) CODEC(ZSTD(1)),
    tokens_640_mtok Nullable(Float64) CODEC(ZSTD(1)),
    tokens_estimated Nullable(Bool) CODEC(ZSTD(1)),
    wasted_mtok Nullable(Float64) CODEC(ZSTD(1)),
    wasted_oom_mtok Nullable(Float64) CODEC(ZSTD(1)),
    wasted_nan_mtok Nullable(Float64) CODEC(ZSTD(1)),
    wasted_kill_mtok Nullable(Float64) CODEC(ZSTD(1)),
    val_mtok Nullable(Float64) CODEC(ZSTD(1)),
    train_seconds Nullable(Float64) CODEC(ZSTD(1)),
    rate_mtok_s Nullable(Float64) CODEC(ZSTD(1)),
    k_s_per_mtok Nullable(Float64) CODEC(ZSTD(1)),
    best_map50_95 Nullable(Float64) CODEC(ZSTD(1)),
    best_epoch Nullable(Int64) CODEC(ZSTD(1)),
    best_top1 Nullable(Float64) CODEC(ZSTD(1)),
    params Nullable(Int64) CODEC(ZSTD(1)),
    gflops Nullable(Float64) CODEC(ZSTD(1)),
    optimizer LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    precision LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    gpu_model LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    gpus Nullable(Int64) CODEC(ZSTD(1)),
    gpu_memory_bytes Nullable(Int64) CODEC(ZSTD(1)),
    gpu_seconds Nullable(Float64) CODEC(ZSTD(1)),
    cost Nullable(Decimal(18, 6)) CODEC(ZSTD(1)),
    currency LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    owner Map(String, String),
    sources Array(String) CODEC(ZSTD(1)),
    started_ts Nullable(DateTime64(3, 'UTC')) CODEC(Delta(8), ZSTD(1)),
    ended_ts Nullable(DateTime64(3, 'UTC')) CODEC(Delta(8), ZSTD(1)),
    epoch_now Nullable(Int64) CODEC(ZSTD(1)),
    iterations_done Nullable(Int64) CODEC(ZSTD(1)),
    iterations_total Nullable(Int64) CODEC(ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'run', run_id))))
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (run_id)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW runs AS SELECT *, event_id FROM run FINAL WHERE is_deleted = 0;

-- One try of one epoch. `kept` says whether its work is in the result; `why_wasted` says why not.
CREATE TABLE IF NOT EXISTS epoch
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    run_id LowCardinality(String) CODEC(ZSTD(1)),
    version UInt64 CODEC(Delta(8), ZSTD(1)),
    is_deleted UInt8 CODEC(ZSTD(1)),
    attempt Int64 CODEC(ZSTD(1)),
    epoch Int64 CODEC(ZSTD(1)),
    take Int64 CODEC(ZSTD(1)),
    kept Bool CODEC(ZSTD(1)),
    why_wasted LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    complete Bool CODEC(ZSTD(1)),
    iterations_done Nullable(Int64) CODEC(ZSTD(1)),
    iterations_total Nullable(Int64) CODEC(ZSTD(1)),
    images Nullable(Int64) CODEC(ZSTD(1)),
    tokens_mtok Nullable(Float64) CODEC(ZSTD(1)),
    tokens_estimated Nullable(Bool) CODEC(ZSTD(1)),
    val_mtok Nullable(Float64) CODEC(ZSTD(1)),
    train_seconds Nullable(Float64) CODEC(ZSTD(1)),
    val_seconds Nullable(Float64) CODEC(ZSTD(1)),
    rate_mtok_s Nullable(Float64) CODEC(ZSTD(1)),
    losses Array(Nullable(Float64)) CODEC(ZSTD(1)),
    map50 Nullable(Float64) CODEC(ZSTD(1)),
    map50_95 Nullable(Float64) CODEC(ZSTD(1)),
    top1 Nullable(Float64) CODEC(ZSTD(1)),
    gpu_memory_bytes Nullable(Int64) CODEC(ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'epoch', run_id, toString(attempt), toString(epoch), toString(take)))))
)
ENGINE = ReplacingMergeTree(version, is_deleted)
ORDER BY (run_id, attempt, epoch, take)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW epochs AS SELECT *, event_id FROM epoch FINAL WHERE is_deleted = 0;

-- Rolling token rates of one run, or of the box (`run_id` null), at one time (docs/maths.md, section 5).
CREATE TABLE IF NOT EXISTS rate
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    run_id LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    window_s Int64 CODEC(ZSTD(1)),
    rate_mtok_s Float64 CODEC(ZSTD(1)),
    coverage_ratio Float64 CODEC(ZSTD(1)),
    active_rate_mtok_s Nullable(Float64) CODEC(ZSTD(1)),
    late Int64 CODEC(ZSTD(1)),
    duplicates Int64 CODEC(ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'rate', node, ifNull(toString(run_id), ''), toString(toUnixTimestamp64Milli(ts)), toString(window_s)))))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(ts)
ORDER BY (node, ifNull(run_id, ''), window_s, ts)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW rates AS SELECT *, event_id FROM rate FINAL;


-- What agents measure of GPUs since they read the driver: more columns of a sample, the GPUs of a node, and what befell them.
--
-- This file is frozen: a change is a new file with the next number. Every statement can run again.

ALTER TABLE gpu
    ADD COLUMN IF NOT EXISTS holder LowCardinality(Nullable(String)) CODEC(ZSTD(1)) AFTER attribution_source,
    ADD COLUMN IF NOT EXISTS energy_source LowCardinality(Nullable(String)) CODEC(ZSTD(1)) AFTER holder,
    ADD COLUMN IF NOT EXISTS memory_util_ratio Nullable(Float32) CODEC(Delta(4), ZSTD(1)) AFTER clock_event_reasons,
    ADD COLUMN IF NOT EXISTS power_limit_w Nullable(Float32) CODEC(ZSTD(1)) AFTER memory_util_ratio,
    ADD COLUMN IF NOT EXISTS pcie_gen Nullable(Float32) CODEC(ZSTD(1)) AFTER power_limit_w,
    ADD COLUMN IF NOT EXISTS pcie_width Nullable(Float32) CODEC(ZSTD(1)) AFTER pcie_gen,
    ADD COLUMN IF NOT EXISTS pcie_replays Nullable(UInt64) CODEC(ZSTD(1)) AFTER pcie_width,
    ADD COLUMN IF NOT EXISTS ecc_corrected Nullable(UInt64) CODEC(ZSTD(1)) AFTER pcie_replays,
    ADD COLUMN IF NOT EXISTS ecc_uncorrected Nullable(UInt64) CODEC(ZSTD(1)) AFTER ecc_corrected,
    ADD COLUMN IF NOT EXISTS throttle_power_s Nullable(Float64) CODEC(Delta(8), ZSTD(1)) AFTER ecc_uncorrected,
    ADD COLUMN IF NOT EXISTS throttle_thermal_s Nullable(Float64) CODEC(Delta(8), ZSTD(1)) AFTER throttle_power_s,
    ADD COLUMN IF NOT EXISTS throttle_hw_thermal_s Nullable(Float64) CODEC(Delta(8), ZSTD(1)) AFTER throttle_thermal_s,
    ADD COLUMN IF NOT EXISTS throttle_brake_s Nullable(Float64) CODEC(Delta(8), ZSTD(1)) AFTER throttle_hw_thermal_s,
    ADD COLUMN IF NOT EXISTS throttle_sync_s Nullable(Float64) CODEC(Delta(8), ZSTD(1)) AFTER throttle_brake_s,
    ADD COLUMN IF NOT EXISTS nvlink_errors Nullable(UInt64) CODEC(ZSTD(1)) AFTER throttle_sync_s,
    ADD COLUMN IF NOT EXISTS processes Nullable(Float32) CODEC(ZSTD(1)) AFTER nvlink_errors,
    ADD COLUMN IF NOT EXISTS foreign_processes Nullable(Float32) CODEC(ZSTD(1)) AFTER processes,
    ADD COLUMN IF NOT EXISTS lost Nullable(Float32) CODEC(ZSTD(1)) AFTER foreign_processes;

CREATE OR REPLACE VIEW gpus AS SELECT *, event_id FROM gpu FINAL;

-- The job of a launcher that a training belongs to.
ALTER TABLE setting ADD COLUMN IF NOT EXISTS job Nullable(String) CODEC(ZSTD(1)) AFTER end_line;

CREATE OR REPLACE VIEW settings AS SELECT *, event_id FROM setting FINAL;

-- The GPUs and slices of GPUs (MIG) of a node, as they were last seen.
CREATE TABLE IF NOT EXISTS gpu_device
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    gpu_uuid String CODEC(ZSTD(1)),
    gpu_model LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    parent_uuid Nullable(String) CODEC(ZSTD(1)),
    sm_share_ratio Nullable(Float64) CODEC(ZSTD(1)),
    memory_total_bytes Nullable(Int64) CODEC(ZSTD(1)),
    driver_version LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    pci_bus_id Nullable(String) CODEC(ZSTD(1)),
    gpu_index Nullable(Int64) CODEC(ZSTD(1)),
    energy_source LowCardinality(Nullable(String)) CODEC(ZSTD(1)),
    version UInt64 CODEC(Delta(8), ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'gpu_device', node, gpu_uuid))))
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (node, gpu_uuid)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW gpu_devices AS SELECT *, event_id FROM gpu_device FINAL;

-- What befell a GPU, or all of a node (`gpu_uuid` null): lost, back, xid, blind, seeing.
CREATE TABLE IF NOT EXISTS gpu_fault
(
    schema_version Int64 CODEC(ZSTD(1)),
    ts DateTime64(3, 'UTC') CODEC(Delta(8), ZSTD(1)),
    node LowCardinality(String) CODEC(ZSTD(1)),
    source LowCardinality(String) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    gpu_uuid Nullable(String) CODEC(ZSTD(1)),
    what LowCardinality(String) CODEC(ZSTD(1)),
    xid Nullable(Int64) CODEC(ZSTD(1)),
    detail Nullable(String) CODEC(ZSTD(1)),
    event_id String ALIAS lower(hex(MD5(concat_ws('\x1f', 'gpu_fault', node, ifNull(gpu_uuid, ''), what, toString(toUnixTimestamp64Milli(ts))))))
)
ENGINE = ReplacingMergeTree
ORDER BY (node, ifNull(gpu_uuid, ''), what, ts)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE OR REPLACE VIEW gpu_faults AS SELECT *, event_id FROM gpu_fault FINAL;

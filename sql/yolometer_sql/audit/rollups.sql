-- Question: Do the rollups hold exactly what the samples say?
-- One row is: one day of one rollup
-- Columns:
--   source (text): the rollup
--   day (date): the day, UTC
--   expected (samples): samples that are there
--   seen (samples): samples that the rollup counted
--   pending (windows): windows of the day that wait to be computed
--   missing (samples): how far the rollup is off, when nothing is pending
-- Parameters:
--   since DateTime = '1970-01-01 00:00:00': the begin of the time, UTC; whole days are compared
--   until DateTime = '2106-01-01 00:00:00': its end

WITH
    raw AS (
        SELECT toDate(ts) AS day, count() AS samples FROM gpus
        WHERE toDate(ts) >= toDate({since:DateTime}) AND ts < {until:DateTime} GROUP BY day
    ),
    rolled AS (
        SELECT 'usage_minute' AS source, toDate(ts) AS day, sum(samples) AS samples FROM usage_minutes GROUP BY day
        UNION ALL SELECT 'usage_hour', toDate(ts) AS day, sum(samples) FROM usage_hours GROUP BY day
        UNION ALL SELECT 'usage_day', toDate(ts) AS day, sum(samples) FROM usage_days GROUP BY day
    ),
    waiting AS (SELECT toDate(ts) AS day, count() AS pending FROM dirty_windows GROUP BY day)
SELECT
    names.source AS source, raw.day AS day, raw.samples AS expected, ifNull(rolled.samples, 0) AS seen,
    ifNull(waiting.pending, 0) AS pending,
    if(pending > 0, 0, abs(toInt64(expected) - toInt64(seen))) AS missing
FROM raw
CROSS JOIN (SELECT arrayJoin(['usage_minute', 'usage_hour', 'usage_day']) AS source) AS names
LEFT JOIN rolled ON rolled.source = names.source AND rolled.day = raw.day
LEFT JOIN waiting ON waiting.day = raw.day
ORDER BY missing DESC, day, source
SETTINGS join_use_nulls = 1

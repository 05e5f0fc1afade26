-- Question: Are there samples of every GPU for all the time?
-- One row is: one meter of one node in one hour
-- Columns:
--   node (text): the machine
--   source (text): the meter
--   hour (time): begin of the hour, UTC
--   expected (samples): what the time that passed and the period of the meter call for
--   seen (samples): rows that are there
--   coverage_ratio (ratio): seen of expected
--   missing (samples): expected and not there
-- Parameters:
--   since DateTime = '1970-01-01 00:00:00': the begin of the time, UTC
--   until DateTime = '2106-01-01 00:00:00': its end

WITH rows AS (
    SELECT node, source, toStartOfHour(ts) AS hour, count() AS seen
    FROM gpus
    WHERE ts >= {since:DateTime} AND ts < {until:DateTime}
        AND toStartOfFiveMinutes(ts) >= toStartOfFiveMinutes({since:DateTime}) AND toStartOfFiveMinutes(ts) <= {until:DateTime}
    GROUP BY node, source, hour
)
SELECT
    c.node AS node, c.source AS source, toDateTime(c.ts, 'UTC') AS hour, c.samples_expected AS expected, ifNull(rows.seen, 0) AS seen,
    if(expected = 0, NULL, least(seen / expected, 1)) AS coverage_ratio,
    greatest(0, toInt64(expected) - toInt64(seen)) AS missing
FROM coverages AS c
LEFT JOIN rows ON rows.node = c.node AND rows.source = c.source AND rows.hour = toDateTime(c.ts, 'UTC')
WHERE c.ts >= toStartOfHour({since:DateTime}) AND c.ts < {until:DateTime}
ORDER BY missing DESC, node, source, hour
SETTINGS join_use_nulls = 1

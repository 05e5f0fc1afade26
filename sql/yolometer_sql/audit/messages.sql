-- Question: Did every message that an agent numbered arrive?
-- One row is: one lane of one agent since it was begun (its epoch), as far as it lies in the time asked for
-- Columns:
--   node (text): the machine
--   source (text): the lane of its spool
--   epoch (time): when the lane was begun; a wiped spool begins another one
--   expected (messages): numbers from the first to the last one
--   seen (messages): numbers that arrived
--   lost (messages): numbers that the agent said it had to drop
--   dead (messages): messages of this node and lane that are dead letters as a whole
--   missing (messages): numbers that nothing explains
--   first_missing_seq (number): the first number that did not arrive and was not dropped; null when there is none
-- Parameters:
--   since DateTime = '1970-01-01 00:00:00': the begin of the time, UTC
--   until DateTime = '2106-01-01 00:00:00': its end

WITH
    arrived AS (
        SELECT node, source, bitShiftRight(seq, 32) AS epoch, toInt64(bitAnd(seq, 4294967295)) AS number
        FROM messages WHERE ts >= {since:DateTime} AND ts < {until:DateTime}
    ),
    lanes AS (
        SELECT node, source, epoch, if(fromUnixTimestamp(epoch) >= {since:DateTime}, toInt64(1), min(number)) AS first_number,
            max(number) AS last_number, uniqExact(number) AS seen,
            arraySort(groupUniqArray(number)) AS numbers
        FROM arrived GROUP BY node, source, epoch
    ),
    dropped AS (
        SELECT node, source, bitShiftRight(seq, 32) AS epoch,
            groupArray((toInt64(bitAnd(seq, 4294967295)), toInt64(bitAnd(last_seq, 4294967295)))) AS ranges
        FROM losses GROUP BY node, source, epoch
    ),
    letters AS (
        SELECT if(position(raw_key, ':') > 0, substring(raw_key, 1, position(raw_key, ':') - 1), raw_key) AS node,
            splitByChar('.', from_topic)[-1] AS source, count() AS dead
        FROM dead_letters WHERE `index` = -1 AND ts >= {since:DateTime} AND ts < {until:DateTime}
        GROUP BY node, source
    ),
    gaps AS (
        SELECT lanes.*, dropped.ranges,
            arrayFilter(gap -> gap.2 >= gap.1, arrayMap(
                (before, after) -> (before + 1, after - 1),
                arrayPushFront(numbers, first_number - 1), arrayPushBack(numbers, last_number + 1)
            )) AS open
        FROM lanes LEFT JOIN dropped USING (node, source, epoch)
    )
SELECT
    node, source, fromUnixTimestamp(epoch) AS epoch,
    last_number - first_number + 1 AS expected,
    seen,
    arraySum(gap -> arraySum(lost -> greatest(0, least(gap.2, lost.2) - greatest(gap.1, lost.1) + 1), ranges), open) AS lost,
    ifNull(letters.dead, 0) AS dead,
    greatest(0, expected - toInt64(seen) - toInt64(lost) - toInt64(dead)) AS missing,
    nullIf(arrayFirst(
        number -> NOT arrayExists(lost -> number BETWEEN lost.1 AND lost.2, ranges),
        arrayFlatten(arrayMap(gap -> range(gap.1, least(gap.2, gap.1 + 999) + 1), open))
    ), 0) AS first_missing_seq
FROM gaps LEFT JOIN letters USING (node, source)
ORDER BY missing DESC, node, source, epoch

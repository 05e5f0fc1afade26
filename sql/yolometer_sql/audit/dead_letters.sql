-- Question: What could not be understood or stored, and was not sent again?
-- One row is: one reason in one topic
-- Columns:
--   source (text): the topic
--   reason (text): why
--   letters (count): dead letters
--   retried (count): those that a person sent again
--   missing (count): those that are open
--   newest (time): when the newest came
-- Parameters:
--   since DateTime = '1970-01-01 00:00:00': the begin of the time, UTC
--   until DateTime = '2106-01-01 00:00:00': its end

SELECT
    from_topic AS source, reason, count() AS letters, countIf(retried_ts IS NOT NULL) AS retried,
    letters - retried AS missing, max(ts) AS newest
FROM dead_letters
WHERE ts >= {since:DateTime} AND ts < {until:DateTime}
GROUP BY source, reason
ORDER BY missing DESC, source, reason

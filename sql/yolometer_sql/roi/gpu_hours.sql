-- Question: How many GPU-hours and how much energy did each team use per day, and how much of the day is known?
-- One row is: one day (UTC) of one team and GPU model
-- Columns:
--   day (date): the day
--   team (text): who the GPUs worked for; null when nobody is known
--   gpu_model (text): the model of the GPUs
--   gpus (count): GPUs that worked for the team that day
--   gpu_hours (hours): time of the samples that are there
--   energy_kwh (kWh): power over time, where the power is known; null where it is known for none
--   gpu_util_ratio (ratio): mean utilisation of the samples where it is known
--   coverage_ratio (ratio): samples that are there of those that should be, on the nodes of these GPUs; null when not known
-- Parameters:
--   since Date = 1970-01-01: the first day
--   until Date = 2149-06-06: the last day

WITH covered AS (
    SELECT toDate(ts) AS day, node, sum(samples) AS seen, sum(samples_expected) AS expected FROM coverages GROUP BY day, node
)
SELECT
    toDate(u.ts) AS day, u.team AS team, u.gpu_model AS gpu_model, uniqExact(u.gpu_uuid) AS gpus,
    sum(u.gpu_seconds) / 3600 AS gpu_hours,
    sumOrNull(u.energy_j) / 3.6e6 AS energy_kwh,
    sumOrNull(u.gpu_util_ratio_sum) / nullIf(sum(u.gpu_util_ratio_samples), 0) AS gpu_util_ratio,
    if(ifNull(sum(c.expected), 0) = 0, NULL, least(1, sum(c.seen) / sum(c.expected))) AS coverage_ratio
FROM usage_days AS u
LEFT JOIN covered AS c ON c.day = toDate(u.ts) AND c.node = u.node
WHERE day BETWEEN {since:Date} AND {until:Date}
GROUP BY day, team, gpu_model
ORDER BY day, team NULLS LAST, gpu_model NULLS LAST
SETTINGS join_use_nulls = 1

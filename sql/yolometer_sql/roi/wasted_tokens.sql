-- Question: Why were tokens consumed for nothing, how many, and what did they cost?
-- One row is: one reason, in one currency
-- Columns:
--   why_wasted (text): oom_retry, nan_replay, killed or redone; null when not known
--   currency (ISO 4217): the currency of the cost; null where the runs have no price
--   epochs (count): tries of an epoch that were not kept
--   runs (count): runs they belong to
--   wasted_mtok (MTok): their tokens
--   unknown_epochs (count): tries whose tokens are not known and so are not in the sum
--   gpu_seconds (s): their GPU-seconds of training
--   cost (money): their share of the cost of the run, by GPU-seconds; null when no price or time is known
--   unpriced_epochs (count): tries whose cost is not known and so is not in the sum
-- Parameters:
--   run_id String = '': only this run; empty for all

SELECT
    why_wasted,
    currency,
    count() AS epochs,
    uniqExact(run_id) AS runs,
    sumOrNull(tokens_mtok) AS wasted_mtok,
    countIf(tokens_mtok IS NULL) AS unknown_epochs,
    sumOrNull(epoch_gpu_seconds) AS gpu_seconds,
    CAST(sumOrNull(epoch_cost), 'Nullable(Decimal(18, 6))') AS cost,
    countIf(epoch_cost IS NULL) AS unpriced_epochs
FROM
(
    SELECT
        e.run_id AS run_id,
        e.why_wasted AS why_wasted,
        e.tokens_mtok AS tokens_mtok,
        r.currency AS currency,
        e.train_seconds * r.gpus AS epoch_gpu_seconds,
        epoch_gpu_seconds / nullIf(r.gpu_seconds, 0) AS share,
        isNotNull(r.cost) AND isNotNull(share) AND isFinite(ifNull(share, 0)) AS priced,
        if(priced, toDecimal128(ifNull(r.cost, 0), 6) * toDecimal128(if(priced, ifNull(share, 0), 0), 12), NULL) AS epoch_cost
    FROM epochs AS e
    LEFT JOIN runs AS r ON r.run_id = e.run_id
    WHERE NOT e.kept AND ({run_id:String} = '' OR e.run_id = {run_id:String})
)
GROUP BY why_wasted, currency
ORDER BY why_wasted NULLS LAST, currency NULLS LAST
SETTINGS join_use_nulls = 1

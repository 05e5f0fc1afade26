-- Question: How fast does each GPU model train each model, and what does a GTok cost there?
-- One row is: one GPU model, trained model and image size
-- Columns:
--   gpu_model (text): the GPU model; null when not known
--   model (text): the trained model
--   imgsz (px): the image size
--   runs (count): runs of that kind
--   consumed_mtok (MTok): tokens processed by them, kept and wasted, where known
--   gpu_seconds (s): GPU-seconds of active training
--   rate_mtok_s_per_gpu (MTok/s): tokens per GPU-second, over the runs where both are known
--   k_s_per_mtok (s/MTok): its inverse
--   rate_mtok_s_median (MTok/s): the median of the rates of the runs, all GPUs of a run together
--   currency (ISO 4217): the currency of the cost; runs in another currency are another row
--   cost_per_gtok (money/GTok): cost of the priced runs per 1000 MTok that they consumed; null when no price is known
--   unpriced_runs (count): runs without a price, in no cost
-- Parameters:
--   model String = '': only this trained model; empty for all

WITH known_runs AS
(
    SELECT
        *,
        tokens_mtok + wasted_mtok AS consumed,
        isNotNull(consumed) AND isNotNull(gpu_seconds) AS timed,
        isNotNull(consumed) AND isNotNull(cost) AS priced
    FROM runs
    WHERE {model:String} = '' OR model = {model:String}
),
sums AS
(
    SELECT
        gpu_model, model, imgsz, currency,
        count() AS runs,
        sumOrNull(r.consumed) AS consumed_mtok,
        sumOrNull(r.gpu_seconds) AS gpu_seconds,
        nullIf(sumOrNullIf(r.consumed, timed), 0) AS timed_mtok,
        nullIf(sumOrNullIf(r.gpu_seconds, timed), 0) AS timed_gpu_seconds,
        medianExactOrNull(r.rate_mtok_s) AS rate_mtok_s_median,
        sumOrNullIf(r.cost, priced) AS priced_cost,
        nullIf(sumOrNullIf(r.consumed, priced), 0) AS priced_mtok,
        countIf(r.cost IS NULL) AS unpriced_runs
    FROM known_runs AS r
    GROUP BY gpu_model, model, imgsz, currency
)
SELECT
    gpu_model, model, imgsz, runs, consumed_mtok, gpu_seconds,
    timed_mtok / timed_gpu_seconds AS rate_mtok_s_per_gpu,
    timed_gpu_seconds / timed_mtok AS k_s_per_mtok,
    rate_mtok_s_median,
    currency,
    -- A function also runs on what lies under a NULL, and dividing decimals by 0 is an error: hence the ifNull.
    if(isNull(priced_cost) OR isNull(priced_mtok), NULL, CAST(divideDecimal(
        toDecimal128(ifNull(priced_cost, 0), 6) * 1000, toDecimal128(ifNull(priced_mtok, 1), 6), 6
    ), 'Decimal(18, 6)')) AS cost_per_gtok,
    unpriced_runs
FROM sums
ORDER BY gpu_model NULLS LAST, model NULLS LAST, imgsz NULLS LAST, currency NULLS LAST

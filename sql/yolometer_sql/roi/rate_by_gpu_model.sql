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

-- A function runs on the values under a NULL too, and dividing decimals by 0 is an error: hence the ifNull before it.
SELECT
    gpu_model, model, imgsz, runs, consumed_mtok, gpu_seconds, rate_mtok_s_per_gpu, k_s_per_mtok, rate_mtok_s_median, currency,
    if(isNull(priced_cost) OR isNull(priced_mtok), NULL, CAST(divideDecimal(
        toDecimal128(ifNull(priced_cost, 0), 6) * 1000, toDecimal128(ifNull(priced_mtok, 1), 6), 6
    ), 'Decimal(18, 6)')) AS cost_per_gtok,
    unpriced_runs
FROM
(
SELECT
    gpu_model,
    model,
    imgsz,
    count() AS runs,
    sumOrNull(consumed) AS consumed_mtok,
    sumOrNull(r.gpu_seconds) AS gpu_seconds,
    sumOrNullIf(consumed, known) / nullIf(sumOrNullIf(r.gpu_seconds, known), 0) AS rate_mtok_s_per_gpu,
    sumOrNullIf(r.gpu_seconds, known) / nullIf(sumOrNullIf(consumed, known), 0) AS k_s_per_mtok,
    medianExactOrNull(r.rate_mtok_s) AS rate_mtok_s_median,
    currency,
    sumOrNullIf(cost, priced) AS priced_cost,
    nullIf(sumOrNullIf(consumed, priced), 0) AS priced_mtok,
    countIf(cost IS NULL) AS unpriced_runs
FROM
(
    SELECT
        *,
        tokens_mtok + wasted_mtok AS consumed,
        isNotNull(consumed) AND isNotNull(gpu_seconds) AS known,
        isNotNull(consumed) AND isNotNull(cost) AS priced
    FROM runs
) AS r
WHERE {model:String} = '' OR model = {model:String}
GROUP BY gpu_model, model, imgsz, currency
)
ORDER BY gpu_model NULLS LAST, model NULLS LAST, imgsz NULLS LAST, currency NULLS LAST

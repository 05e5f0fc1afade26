-- Question: How much faster does a larger batch train, what memory does it take, and where does it stop helping?
-- One row is: one batch size of one trained model, image size, GPU model and number of GPUs
-- Columns:
--   gpu_model (text): the GPU model; null when not known
--   gpus (count): GPUs of the runs
--   model (text): the trained model
--   imgsz (px): the image size
--   batch (count): images per iteration, over all GPUs
--   runs (count): runs with that batch and a known rate
--   memory_gib (GiB): GPU memory they took at most
--   rate_mtok_s (MTok/s): the median of their rates
--   smaller_batch (count): the next smaller batch that was tried; null for the smallest
--   gain_ratio (ratio): rate over that of the smaller batch, less 1; near 0 or below, more batch no longer helps
--   gain_mtok_s_per_gib (MTok/s/GiB): rate gained per GiB more memory than the smaller batch takes; null when it takes no more
-- Parameters:
--   model String = '': only this trained model; empty for all

WITH tried AS
(
    SELECT
        gpu_model, gpus, model, imgsz, batch,
        count() AS runs,
        maxOrNull(r.gpu_memory_bytes) / pow(1024, 3) AS memory_gib,
        medianExactOrNull(r.rate_mtok_s) AS rate_mtok_s
    FROM runs AS r
    WHERE r.rate_mtok_s IS NOT NULL AND batch IS NOT NULL AND ({model:String} = '' OR model = {model:String})
    GROUP BY gpu_model, gpus, model, imgsz, batch
)
SELECT
    gpu_model, gpus, model, imgsz, batch, runs, memory_gib, rate_mtok_s,
    lagInFrame(batch) OVER smaller AS smaller_batch,
    rate_mtok_s / nullIf(lagInFrame(rate_mtok_s) OVER smaller, 0) - 1 AS gain_ratio,
    if(memory_gib > lagInFrame(memory_gib) OVER smaller,
       (rate_mtok_s - lagInFrame(rate_mtok_s) OVER smaller) / (memory_gib - lagInFrame(memory_gib) OVER smaller),
       NULL) AS gain_mtok_s_per_gib
FROM tried
WINDOW smaller AS
(
    PARTITION BY gpu_model, gpus, model, imgsz ORDER BY batch ROWS BETWEEN 1 PRECEDING AND CURRENT ROW
)
ORDER BY gpu_model NULLS LAST, gpus NULLS LAST, model NULLS LAST, imgsz NULLS LAST, batch

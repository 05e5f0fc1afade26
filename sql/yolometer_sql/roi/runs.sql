-- Question: Which trainings are there, how far are they, and what did each use and cost?
-- One row is: one run, over all its attempts
-- Columns:
--   run_id (text): the run
--   name (text): its name in the training framework
--   framework (text): the training framework
--   framework_version (text): its version
--   task (text): detect, segment, classify, pose, obb
--   model (text): the model that is trained
--   imgsz (px): the image size asked for
--   batch (count): images per iteration, over all GPUs; the effective one
--   epochs_planned (count): epochs asked for
--   epochs_done (count): epochs whose work is in the result
--   attempts (count): training processes, 1 and one more for each resume
--   status (text): running, finished, stopped_early, interrupted or failed
--   images_per_epoch (count): training images of one epoch
--   images (count): training images processed and kept
--   tokens_mtok (MTok): kept training tokens
--   tokens_640_mtok (MTok@640): the same, normalised to 640 px; for reading side by side only
--   wasted_mtok (MTok): tokens consumed and not kept
--   train_seconds (s): active training time over all attempts, wasted time included
--   rate_mtok_s (MTok/s): tokens per second of active training
--   k_s_per_mtok (s/MTok): GPU-seconds per million tokens
--   best_map50_95 (ratio): the best mAP50-95 of a validation
--   best_epoch (count): the epoch of that validation, from 1
--   params (count): parameters of the model
--   gflops (GFLOP): work of one forward pass
--   optimizer (text): the optimizer
--   gpu_model (text): the GPU model
--   gpus (count): GPUs of the run
--   gpu_seconds (s): GPU-seconds of active training
--   cost (money): what they cost; null when the price is not known
--   currency (ISO 4217): the currency of the cost
--   sources (list): the files that say so
-- Parameters:
--   run_id String = '': only this run; empty for all

SELECT
    run_id, name, framework, framework_version, task, model, imgsz, batch, epochs_planned, epochs_done, attempts, status,
    images_per_epoch, images, tokens_mtok, tokens_640_mtok, wasted_mtok, train_seconds, rate_mtok_s, k_s_per_mtok,
    best_map50_95, best_epoch, params, gflops, optimizer, gpu_model, gpus, gpu_seconds, cost, currency, sources
FROM runs
WHERE {run_id:String} = '' OR run_id = {run_id:String}
ORDER BY started_ts NULLS LAST, run_id

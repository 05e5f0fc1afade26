-- Question: How much mAP50-95 does each further GTok buy?
-- One row is: one kept epoch of one run that was validated
-- Columns:
--   run_id (text): the run
--   model (text): the trained model
--   epoch (count): the epoch, from 1
--   tokens_gtok (GTok): kept training tokens from the first epoch to the end of this one; null when one of them is not known
--   map50_95 (ratio): mAP50-95 after this epoch
--   step_gtok (GTok): kept tokens since the validated epoch before; null for the first
--   gain (ratio): mAP50-95 gained since then
--   gain_per_gtok (ratio/GTok): gain per GTok of that step; null when its tokens are not known
-- Parameters:
--   run_id String = '': only this run; empty for all

WITH validated AS
(
    SELECT run_id, epoch, tokens_gtok, map50_95
    FROM
    (
        SELECT
            run_id, epoch, map50_95,
            if(count(tokens_mtok) OVER so_far = count() OVER so_far, sum(tokens_mtok) OVER so_far / 1000, NULL) AS tokens_gtok
        FROM epochs
        WHERE kept AND ({run_id:String} = '' OR run_id = {run_id:String})
        WINDOW so_far AS (PARTITION BY run_id ORDER BY epoch ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
    )
    WHERE map50_95 IS NOT NULL
)
SELECT
    v.run_id AS run_id,
    r.model AS model,
    v.epoch AS epoch,
    v.tokens_gtok AS tokens_gtok,
    v.map50_95 AS map50_95,
    v.tokens_gtok - lagInFrame(v.tokens_gtok) OVER before AS step_gtok,
    v.map50_95 - lagInFrame(v.map50_95) OVER before AS gain,
    gain / nullIf(step_gtok, 0) AS gain_per_gtok
FROM validated AS v
LEFT JOIN runs AS r ON r.run_id = v.run_id
WINDOW before AS (PARTITION BY v.run_id ORDER BY v.epoch ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
ORDER BY run_id, epoch
SETTINGS join_use_nulls = 1

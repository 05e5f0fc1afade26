-- Question: How many tokens did each team train, validate and waste per day?
-- One row is: one day of one team
-- Columns:
--   day (date): the day in which the epochs ended, in the time zone
--   team (text): the owner's team; null when nobody said
--   kept_mtok (MTok): training tokens whose work is in the result
--   val_mtok (MTok): validation tokens
--   wasted_mtok (MTok): training tokens consumed and not kept
--   unknown_epochs (count): epochs whose tokens are not known and so are in no sum
-- Parameters:
--   since Date = 1970-01-01: the first day
--   until Date = 2149-06-06: the last day
--   time_zone String = 'UTC': the zone in which a day begins

SELECT
    toDate(e.ts, {time_zone:String}) AS day,
    nullIf(r.owner['team'], '') AS team,
    if(countIf(e.kept) = 0, 0., sumOrNullIf(e.tokens_mtok, e.kept)) AS kept_mtok,
    sumOrNull(e.val_mtok) AS val_mtok,
    if(countIf(NOT e.kept) = 0, 0., sumOrNullIf(e.tokens_mtok, NOT e.kept)) AS wasted_mtok,
    countIf(e.tokens_mtok IS NULL) AS unknown_epochs
FROM epochs AS e
LEFT JOIN runs AS r ON r.run_id = e.run_id
WHERE day BETWEEN {since:Date} AND {until:Date}
GROUP BY day, team
ORDER BY day, team NULLS LAST
SETTINGS join_use_nulls = 1

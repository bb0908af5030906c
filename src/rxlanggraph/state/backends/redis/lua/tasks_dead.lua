-- Backend.tasks_dead, Backend.tasks_dead_page
-- KEYS: clock, sequence, the queue's. ARGV: serial, then 'some' and keys; or 'page', the place
--   after which the page begins or '', and the length of the page.
-- Returns id, text, key or '', thread or '', attempts, worker, error or nil, and place of each dead
--   task; 'again' if more has to be swept first.

local places
if ARGV[2] == 'page' then
  if sweep() then
    return 'again'
  end
  local from = ARGV[3] == '' and '-' or '(' .. ARGV[3]
  places = redis.call('ZRANGEBYLEX', DEAD, from, '+', 'LIMIT', 0, ARGV[4])
else
  local ids = {}
  for i = 3, #ARGV do
    ids[#ids + 1] = redis.call('HGET', NAMES, ARGV[i])
  end
  places = dead_among(ids)
end

local dead = {}
for i, place in ipairs(places) do
  local id = id_of(place)
  local task = load(id)
  dead[i] = {
    id,
    redis.call('HGET', TEXTS, id),
    task.key or '',
    task.thread or '',
    task.attempt,
    task.worker,
    redis.call('HGET', ERRORS, id),
    place,
  }
end
return dead

-- Backend.tasks_dead
-- KEYS: clock, lane, the queue's. ARGV: serial, 'all' or 'some', then the keys of some.
-- Returns of each dead task its id, text, key or '', thread or '', attempts, worker, error or nil.

sweep()
local places
if ARGV[2] == 'all' then
  places = redis.call('ZRANGE', DEAD, 0, -1)
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
  }
end
return dead

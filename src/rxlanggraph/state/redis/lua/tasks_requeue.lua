-- Backend.tasks_requeue
-- KEYS: clock, lane, the queue's. ARGV: serial, 'all' or 'some', then the ids of some.
-- Returns how many were put back, as text.

local before = answered()
if before then
  return before
end

sweep()
local places
if ARGV[2] == 'all' then
  places = redis.call('ZRANGE', DEAD, 0, -1)
else
  local ids = {}
  for i = 3, #ARGV do
    ids[#ids + 1] = ARGV[i]
  end
  places = dead_among(ids)
end

local rank = #places > 0 and draw(#places)
for i, place in ipairs(places) do
  local task = load(id_of(place))
  redis.call('ZREM', DEAD, place)
  redis.call('HDEL', ERRORS, id_of(place))
  task.attempt = 0
  task.worker = ''
  put_at_end(task, rank + i - 1)
  save(task)
  offer(task)
end
return answer(tostring(#places))

-- Backend.tasks_stats
-- KEYS: clock, lane, the queue's. ARGV: serial.
-- Returns the numbers of waiting, delayed, claimed, completed and dead, and of the dead without an
-- error; then each worker that has tasks, and how many. 'again' if there is more to sweep before.

if sweep() then
  return 'again'
end
local delayed, claimed = redis.call('ZCARD', DELAYED), redis.call('ZRANGE', CLAIMED, 0, -1)
local completed, dead = redis.call('HLEN', RESULTS), redis.call('ZCARD', DEAD)
local waiting = redis.call('HLEN', TASKS) - delayed - #claimed - completed - dead

local workers = {}
for first = 1, #claimed, MOST do
  local ids = {}
  for i = first, math.min(first + MOST - 1, #claimed) do
    ids[#ids + 1] = id_of(claimed[i])
  end
  for _, task in ipairs(load_all(ids)) do
    workers[task.worker] = (workers[task.worker] or 0) + 1
  end
end

local expired = dead - redis.call('HLEN', ERRORS)
local counts = { waiting, delayed, #claimed, completed, dead, expired }
for worker, count in pairs(workers) do
  counts[#counts + 1] = worker
  counts[#counts + 1] = count
end
return counts

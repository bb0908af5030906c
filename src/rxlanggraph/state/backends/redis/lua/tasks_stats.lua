-- Backend.tasks_stats
-- KEYS: clock, sequence, the queue's. ARGV: serial.
-- Returns the numbers of waiting, delayed, claimed, completed and dead tasks, and of dead ones
-- without an error; then each worker with claimed tasks, and their number. 'again' if more has to
-- be swept first.

if sweep() then
  return 'again'
end
local delayed, claimed = redis.call('ZCARD', DELAYED), redis.call('ZCARD', CLAIMED)
local completed, dead = redis.call('HLEN', RESULTS), redis.call('ZCARD', DEAD)
local waiting = redis.call('HLEN', TASKS) - delayed - claimed - completed - dead
local expired = dead - redis.call('HLEN', ERRORS)

local counts = { waiting, delayed, claimed, completed, dead, expired }
for i, each in ipairs(redis.call('HGETALL', WORKERS)) do
  counts[6 + i] = i % 2 == 0 and tonumber(each) or each
end
return counts

-- Backend.tasks_purge, its first step
-- KEYS: clock, lane, the queue's. ARGV: serial, then the states.
-- Returns the ids of all tasks in these states; of others, too, if waiting is one of them.

sweep()
local ids = {}
for i = 2, #ARGV do
  local state = ARGV[i]
  -- Waiting is whatever has no list of its own; so there it is every task.
  if state == 'waiting' then
    return redis.call('HKEYS', TASKS)
  end
  local is_completed = state == 'completed'
  local listed = is_completed and redis.call('HKEYS', RESULTS)
    or redis.call('ZRANGE', state == 'dead' and DEAD or CLAIMED, 0, -1)
  for _, name in ipairs(listed) do
    ids[#ids + 1] = is_completed and name or id_of(name)
  end
end
return ids

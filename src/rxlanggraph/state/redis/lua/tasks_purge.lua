-- Backend.tasks_purge, each of its later steps
-- KEYS: clock, lane, the queue's. ARGV: serial, the states with blanks between them, then ids.
-- Returns how many of these tasks are forgotten, as text.

local before = answered()
if before then
  return before
end

sweep()
local unwanted = {}
for state in string.gmatch(ARGV[2], '%a+') do
  unwanted[state] = true
end

local function state_of(task)
  if task.done then
    return 'completed'
  elseif redis.call('ZSCORE', CLAIMED, task.place) then
    return 'claimed'
  elseif redis.call('ZSCORE', DEAD, task.place) then
    return 'dead'
  end
  return 'waiting'
end

local function forget(id, task)
  redis.call('HDEL', TASKS, id)
  redis.call('HDEL', TEXTS, id)
  if task.key then
    redis.call('HDEL', NAMES, task.key)
  end
  if task.done then
    redis.call('HDEL', RESULTS, id)
    return
  end
  take_out(task)
  redis.call('ZREM', DELAYED, task.place)
  redis.call('ZREM', DEAD, task.place)
  redis.call('HDEL', ERRORS, id)
  let_next(task) -- which waits before and after
end

local count = 0
for i = 3, #ARGV do
  local task = load(ARGV[i])
  if task and unwanted[state_of(task)] then
    forget(ARGV[i], task)
    count = count + 1
  end
end
return answer(whole(count))

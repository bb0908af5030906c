-- Backend.tasks_cancel
-- KEYS: clock, sequence, the queue's. ARGV: serial, the error, then the ids.
-- Returns, as text, how many were ended; 'again' if more has to be swept first.

local before = answered()
if before then
  return before
end
if sweep() then
  return 'again'
end

local count = 0
for i = 3, #ARGV do
  local task = load(ARGV[i])
  if task and not task.done and not redis.call('ZSCORE', DEAD, task.place) then
    take_out(task)
    redis.call('ZREM', DELAYED, task.place)
    bury(task, ARGV[2], now)
    count = count + 1
  end
end
return answer(tostring(count))

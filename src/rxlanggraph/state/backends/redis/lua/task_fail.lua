-- Backend.task_fail
-- KEYS: clock, sequence, the queue's. ARGV: serial, id, token, error, delay in us, or '' for
--   no further attempt.
-- Returns '1', or nil if the token is not current.

local before = answered()
if before then
  return before
end

local task = current(ARGV[2], ARGV[3])
if not task then
  return false
end
take_out(task)
if ARGV[5] == '' or task.attempt >= task.cap then
  bury(task, ARGV[4], now)
else
  task.token = nil
  save(task)
  wait(task, tonumber(ARGV[5]))
end
return answer('1')

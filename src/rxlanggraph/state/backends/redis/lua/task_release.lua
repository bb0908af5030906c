-- Backend.task_release
-- KEYS: clock, sequence, the queue's. ARGV: serial, id, token.
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
task.token = nil
task.attempt = task.attempt - 1
save(task)
offer(task)
return answer('1')

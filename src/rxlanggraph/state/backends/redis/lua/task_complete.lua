-- Backend.task_complete
-- KEYS: clock, sequence, the queue's. ARGV: serial, id, token, result.
-- Returns 1, or 0 if the token is not current and has not completed the task either.

local id, token = ARGV[2], ARGV[3]
local task = load(id)
if not task or task.token ~= token then
  return 0
end
if not task.done then
  if is_over(task) then
    return 0
  end
  take_out(task)
  task.done = true
  save(task)
  redis.call('HSET', RESULTS, id, ARGV[4])
  redis.call('ZADD', DONE, 0, id)
  let_next(task)
end
return 1

-- Backend.task_renew
-- KEYS: clock, sequence, the queue's. ARGV: serial, id, token, lease in us.
-- Returns 1, or 0 if the token is not current.

local task = current(ARGV[2], ARGV[3])
if not task then
  return 0
end
if redis.call('ZADD', CLAIMED, 'XX', 'CH', whole(now + ARGV[4]), task.place) == 0 then
  take_out(task)
  put_in_work(task, ARGV[4])
end
return 1

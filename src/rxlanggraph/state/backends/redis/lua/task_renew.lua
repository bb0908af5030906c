-- Backend.task_renew
-- KEYS: clock, sequence, the queue's. ARGV: serial, id, token, lease in us, how many may be
--   claimed then or ''.
-- Returns 1, or 0 if the token is not current, or the task was swept and as many others are claimed;
--   'again' if more has to be swept before that is known.

local task = current(ARGV[2], ARGV[3])
if not task then
  return 0
end
if redis.call('ZADD', CLAIMED, 'XX', 'CH', whole(now + ARGV[4]), task.place) == 0 then
  if is_full(ARGV[5]) and not redis.call('ZSCORE', CLAIMED, task.place) then
    local is_unswept = sweep()
    if is_full(ARGV[5]) then
      return is_unswept and 'again' or 0
    end
  end
  take_out(task)
  put_in_work(task, ARGV[4])
end
return 1

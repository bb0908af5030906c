-- Backend.tasks_requeue, Backend.tasks_requeue_step
-- KEYS: clock, sequence, the queue's. ARGV: serial, then 'some' and ids; or 'step', and the place
--   of the last task to put back, '' in the first step.
-- Returns, as text, how many were put back, and that place for the next step if there is one;
--   'again' if more has to be swept before the first step.

local before = answered()
if before then
  return before
end

local places, last = nil, ''
if ARGV[2] == 'step' then
  last = ARGV[3]
  if last == '' then
    if sweep() then
      return 'again'
    end
    last = redis.call('ZRANGE', DEAD, -1, -1)[1] or ''
  end
  -- A task that was put back and dies again is at the end of the queue, behind `last`.
  places = last == '' and {}
    or redis.call('ZRANGEBYLEX', DEAD, '-', '[' .. last, 'LIMIT', 0, MAX_PER_STEP)
  if #places < MAX_PER_STEP then
    last = ''
  end
else
  local ids = {}
  for i = 3, #ARGV do
    ids[#ids + 1] = ARGV[i]
  end
  places = dead_among(ids)
end

local rank = #places > 0 and draw(#places)
for i, place in ipairs(places) do
  local task = load(id_of(place))
  redis.call('ZREM', DEAD, place)
  redis.call('HDEL', ERRORS, id_of(place))
  task.attempt = 0
  task.worker = ''
  task.claimed = nil
  task.ended = nil
  put_at_end(task, rank + i - 1)
  save(task)
  offer(task)
end
return answer(#places .. ' ' .. last)

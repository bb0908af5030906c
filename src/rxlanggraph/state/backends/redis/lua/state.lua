-- The state of a task, for the scripts that include this part (and queue.lua).

-- Return the state of a task, as if the queue had been swept; and when its last lease ends or has
-- ended, if it is not swept.
local function state_of(task)
  if task.done then
    return 'completed'
  end
  local ends = tonumber(redis.call('ZSCORE', CLAIMED, task.place) or nil)
  if ends and ends > now then
    return 'claimed', ends
  elseif ends and task.attempt >= task.cap or redis.call('ZSCORE', DEAD, task.place) then
    return 'dead', ends
  end
  return 'waiting', ends
end

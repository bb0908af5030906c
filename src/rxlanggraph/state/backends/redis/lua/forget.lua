-- Deleting tasks, for the scripts that include this part (and queue.lua).

local function forget(id, task)
  redis.call('HDEL', TASKS, id)
  redis.call('HDEL', TEXTS, id)
  if task.key then
    redis.call('HDEL', NAMES, task.key)
  end
  if task.done then
    redis.call('HDEL', RESULTS, id)
    redis.call('ZREM', DONE, id)
    return
  end
  take_out(task)
  redis.call('ZREM', DELAYED, task.place)
  redis.call('ZREM', DEAD, task.place)
  redis.call('HDEL', ERRORS, id)
  let_next(task)
end

-- Backend.task_claim
-- KEYS: clock, sequence, the queue's. ARGV: serial, worker, lease in us.
-- Returns id, text, key or '', thread or '', attempt and token; nil if there is nothing to claim;
--   'again' if more has to be swept before that is known.

local function claimed(task)
  local id = id_of(task.place)
  local text = redis.call('HGET', TEXTS, id)
  return { id, text, task.key or '', task.thread or '', task.attempt, task.token }
end

-- The text may be long, so only token and id are stored; the answer is made again from them.
local before = answered()
if before then
  local token, id = string.match(before, '^(%d+) (.*)$')
  local task = current(id, token)
  return task and claimed(task) or false
end

local is_unswept = sweep()
local place = redis.call('ZPOPMIN', READY)[1]
if not place then
  return is_unswept and 'again'
end
local task = load(id_of(place))
task.attempt = task.attempt + 1
task.worker = ARGV[2]
task.token = whole(draw(1))
save(task)
put_in_work(task, ARGV[3])
answer(task.token .. ' ' .. id_of(place))
return claimed(task)

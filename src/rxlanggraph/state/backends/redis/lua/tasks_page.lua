-- Backend.tasks_page, Backend.task_read
-- KEYS: clock, sequence, the queue's, since. ARGV: serial, then 'one' and an id; or 'page', the
--   cursor, and the length of the page.
-- Returns, as JSON, a cursor for the next page, '0' after the last; then of each task a list: id,
--   key, thread, priority, state, attempts, cap, worker, due in, age, added, claimed and ended,
--   each time in seconds, and false for what there is not. Then for one task text, result, error.

local since = tonumber(redis.call('GET', KEYS[16]) or nil)

local function seconds(time)
  return time and time / 1000000 or false
end

local function described(id, task)
  local state, ends = state_of(task)
  local due, began, ended = false, task.added, task.ended or false
  if state == 'claimed' then
    due, began = ends - now, task.claimed
  elseif state == 'waiting' then
    due = math.max(0, tonumber(redis.call('ZSCORE', DELAYED, task.place) or now) - now)
  else
    ended = ended or ends or false
    began = ended or nil
  end
  return {
    id, task.key or false, task.thread or false, task.priority, state, task.attempt, task.cap,
    task.worker, seconds(due), seconds(now - (began or since or now)), seconds(task.added),
    seconds(task.claimed), seconds(ended),
  }
end

if ARGV[2] == 'one' then
  local task = load(ARGV[3])
  if not task then
    return false
  end
  return {
    cjson.encode(described(ARGV[3], task)),
    redis.call('HGET', TEXTS, ARGV[3]),
    redis.call('HGET', RESULTS, ARGV[3]),
    redis.call('HGET', ERRORS, ARGV[3]),
  }
end

local reply = redis.call('HSCAN', TASKS, ARGV[3], 'COUNT', ARGV[4])
local page = { reply[1] }
for i = 1, #reply[2], 2 do
  page[#page + 1] = described(reply[2][i], cmsgpack.unpack(reply[2][i + 1]))
end
return cjson.encode(page)

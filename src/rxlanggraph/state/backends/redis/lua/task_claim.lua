-- Backend.task_claim, Backend.tasks_claim
-- KEYS: clock, sequence, the queue's. ARGV: serial, worker, lease in us, how many at most, how
--   many may be claimed then or ''.
-- Returns id, text, key or '', thread or '', attempt and token of each, as a JSON list of lists: one
--   string is read much faster than the parts of a nested reply; 'again' if there is none, but more
--   has to be swept before that is known.

local function claimed(task, id, text)
  return { id, text, task.key or '', task.thread or '', task.attempt, task.token }
end

-- The texts may be long, so only tokens and ids are stored; the answer is made again from them.
local before = answered()
if before then
  local tasks = {}
  for _, known in ipairs(cmsgpack.unpack(before)) do
    local token, id = known[1], known[2]
    local task = current(id, token)
    tasks[#tasks + 1] = task and claimed(task, id, redis.call('HGET', TEXTS, id))
  end
  return #tasks > 0 and cjson.encode(tasks) or '[]'
end

local is_unswept = sweep()
local most = tonumber(ARGV[4])
if is_full(ARGV[5]) then
  if is_unswept then
    return 'again'
  end
  -- For much longer than a worker that waits pauses between two polls, each of which sets it again.
  redis.call('SET', FULL, 1, 'NX', 'PX', 10000)
  return '[]'
elseif ARGV[5] ~= '' then
  most = math.min(most, ARGV[5] - redis.call('ZCARD', CLAIMED))
end
local places = redis.call('ZPOPMIN', READY, most) -- and the score of each
local count = #places / 2
if count == 0 then
  return is_unswept and 'again' or '[]'
end
local ids = {}
for i = 1, count do
  ids[i] = id_of(places[2 * i - 1])
end
local stored, texts = read_all(TASKS, ids), read_all(TEXTS, ids)
local first, ends = draw(count), whole(now + ARGV[3])
local tasks, known, saved, leases = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local task = cmsgpack.unpack(stored[i])
  task.attempt = task.attempt + 1
  task.worker = ARGV[2]
  task.token = whole(first + i - 1)
  task.claimed = now
  put(saved, id, cmsgpack.pack(task))
  put(leases, ends, task.place)
  tasks[i] = claimed(task, id, texts[i])
  known[i] = { task.token, id }
end
write_all('HSET', TASKS, saved)
write_all('ZADD', CLAIMED, leases)
tally(ARGV[2], count)
answer(cmsgpack.pack(known))
return cjson.encode(tasks)

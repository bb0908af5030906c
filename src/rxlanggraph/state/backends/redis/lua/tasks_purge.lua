-- Backend.tasks_purge_step
-- KEYS: clock, sequence, the queue's. ARGV: serial, the states with blanks between them, which tasks are
--   looked at: 'completed', 'dead' or 'every'; then the two that the step before has returned, '' in
--   the first one: where it goes on, and up to where.
-- Returns, as JSON, how many are forgotten, and those two for the next step if there is one; 'again'
--   if there is more to sweep before.

local before = answered()
if before then
  return before
end

local which, cursor, last = ARGV[3], ARGV[4], ARGV[5]
local unwanted = {}
for state in string.gmatch(ARGV[2], '%a+') do
  unwanted[state] = true
end

-- As if the queue had been swept.
local function state_of(task)
  if task.done then
    return 'completed'
  end
  local ends = redis.call('ZSCORE', CLAIMED, task.place)
  if ends and tonumber(ends) > now then
    return 'claimed'
  elseif ends and task.attempt >= task.cap or redis.call('ZSCORE', DEAD, task.place) then
    return 'dead'
  end
  return 'waiting'
end

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
  let_next(task) -- which waits before and after
end

-- Of those that have a list of their own: the next ids, and where the step after this one goes on.
local function listed(set, id_in)
  if last == '' then
    last = redis.call('ZRANGE', set, -1, -1)[1] or ''
  end
  local from = cursor == '' and '-' or '(' .. cursor
  local members = last == '' and {}
    or redis.call('ZRANGEBYLEX', set, from, '[' .. last, 'LIMIT', 0, MOST)
  cursor = #members == MOST and members[MOST] or ''
  local ids = {}
  for i, member in ipairs(members) do
    ids[i] = id_in(member)
  end
  return ids
end

-- What waits, or is claimed, has none in which it stays at its place. Of those that are there all the
-- while the server shows each at least once; those that were added since the first step have a rank
-- beyond it.
local function scanned()
  if last == '' then
    last = string.format('%016.0f', math.max(now, tonumber(redis.call('GET', CLOCK) or 0)))
  end
  local told = redis.call('HSCAN', TASKS, cursor == '' and '0' or cursor, 'COUNT', math.floor(MOST / 2))
  cursor = told[1] ~= '0' and told[1] or ''
  local ids = {}
  for i = 1, #told[2], 2 do
    local task = cmsgpack.unpack(told[2][i + 1])
    if string.sub(task.place, 1, 16) <= last then
      ids[#ids + 1] = told[2][i]
    end
  end
  return ids
end

local ids
if which == 'completed' then
  ids = listed(DONE, function(id) return id end)
elseif which == 'dead' then
  if sweep() then
    return 'again'
  end
  ids = listed(DEAD, id_of)
else
  ids = scanned()
end

local count = 0
for _, id in ipairs(ids) do
  local task = load(id)
  if task and unwanted[state_of(task)] then
    forget(id, task)
    count = count + 1
  end
end
return answer(cjson.encode({ count, cursor, last }))

-- Backend.tasks_purge_step
-- KEYS: clock, sequence, the queue's. ARGV: serial; the states, separated by blanks; the tasks to
--   read: 'completed', 'dead' or 'every'; then the cursor and the limit that the previous step has
--   returned, '' in the first step.
-- Returns, as JSON, the number of deleted tasks, and cursor and limit for the next step, the cursor
--   '' after the last; 'again' if more has to be swept first.

local before = answered()
if before then
  return before
end

local which, cursor, last = ARGV[3], ARGV[4], ARGV[5]
local unwanted = {}
for state in string.gmatch(ARGV[2], '%a+') do
  unwanted[state] = true
end

-- Return the next ids of a sorted set, and advance the cursor.
local function listed(set, id_in)
  if last == '' then
    last = redis.call('ZRANGE', set, -1, -1)[1] or ''
  end
  local from = cursor == '' and '-' or '(' .. cursor
  local members = last == '' and {}
    or redis.call('ZRANGEBYLEX', set, from, '[' .. last, 'LIMIT', 0, MAX_PER_STEP)
  cursor = #members == MAX_PER_STEP and members[MAX_PER_STEP] or ''
  local ids = {}
  for i, member in ipairs(members) do
    ids[i] = id_in(member)
  end
  return ids
end

-- Return ids from a scan of all tasks, and advance the cursor. Waiting and claimed tasks have no
-- set in which they keep their position. HSCAN returns every task that is there from the first step
-- to the last at least once; tasks added since the first step have a rank beyond the limit.
local function scanned()
  if last == '' then
    last = string.format('%016.0f', math.max(now, tonumber(redis.call('GET', CLOCK) or 0)))
  end
  local start, count = cursor == '' and '0' or cursor, math.floor(MAX_PER_STEP / 2)
  local reply = redis.call('HSCAN', TASKS, start, 'COUNT', count)
  cursor = reply[1] ~= '0' and reply[1] or ''
  local ids = {}
  for i = 1, #reply[2], 2 do
    local task = cmsgpack.unpack(reply[2][i + 1])
    if string.sub(task.place, 1, 16) <= last then
      ids[#ids + 1] = reply[2][i]
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

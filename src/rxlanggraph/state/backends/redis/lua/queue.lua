-- One queue, for the scripts that include this part (and clock.lua).
--
-- The place of a task identifies it: its rank in the order of adding, as 16 digits, a colon, and
-- its id. Sorted sets order places of one score by their bytes, which is that order. A waiting task
-- is in READY if it can be claimed (lowest score first: the highest priority), in DELAYED until it
-- is due, and otherwise in THREADS alone, behind an earlier task of its thread.

local READY, DELAYED, CLAIMED, DEAD = KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local THREADS = KEYS[7] -- "thread NUL place" of each task that is neither completed nor dead
local TASKS, TEXTS, RESULTS, ERRORS = KEYS[8], KEYS[9], KEYS[10], KEYS[11] -- by id
local NAMES = KEYS[12] -- the id, by key
local DONE = KEYS[13] -- the ids of completed tasks
local WORKERS = KEYS[14] -- how many in CLAIMED each worker has
local FULL = KEYS[15] -- set by a claim that was refused for its limit; expires

-- And MAX_PER_STEP, from scripts.py: the tasks in one step (rule 9 of the contract). While a script
-- runs, all other calls of the server wait.

-- -- one task ----------------------------------------------------------------------------------

local function id_of(place)
  return string.sub(place, 18)
end

-- Fields: place, priority, cap (of attempts), attempt, worker, key, thread; token while it is
-- current, and of a completed task the one that completed it; done once it is completed; added,
-- claimed (the last time) and ended, each nil if that happened before the layout had these times.
local function load(id)
  local packed = redis.call('HGET', TASKS, id)
  return packed and cmsgpack.unpack(packed)
end

local function save(task)
  redis.call('HSET', TASKS, id_of(task.place), cmsgpack.pack(task))
end

-- A call for each task takes most of the time of many. These take a list, in parts that the stack of
-- Lua has room for; each part has whole pairs.
local PART = 1000

local function read_all(hash, fields)
  local values = {}
  for i = 1, #fields, PART do
    local part = redis.call('HMGET', hash, unpack(fields, i, math.min(i + PART - 1, #fields)))
    for _, value in ipairs(part) do
      values[#values + 1] = value
    end
  end
  return values
end

local function write_all(command, key, pairs_of)
  for i = 1, #pairs_of, PART do
    redis.call(command, key, unpack(pairs_of, i, math.min(i + PART - 1, #pairs_of)))
  end
end

local function put(pairs_of, one, other)
  pairs_of[#pairs_of + 1] = one
  pairs_of[#pairs_of + 1] = other
end

-- Whether the lease of the last attempt is over: such a task is dead, even before a sweep.
local function is_over(task)
  local ends = task.attempt >= task.cap and redis.call('ZSCORE', CLAIMED, task.place)
  return ends and tonumber(ends) <= now
end

-- Return the unfinished task of this id, if `token` is current.
local function current(id, token)
  local task = load(id)
  if task and task.token == token and not task.done and not is_over(task) then
    return task
  end
end

-- -- order -------------------------------------------------------------------------------------

-- Names contain no NUL: the members between "thread NUL" and "thread SOH" are those of this thread.
local function first_of(thread)
  local range = { '[' .. thread .. '\0', '(' .. thread .. '\1' }
  local first = redis.call('ZRANGEBYLEX', THREADS, range[1], range[2], 'LIMIT', 0, 1)[1]
  return first and string.sub(first, #thread + 2)
end

local has_told = false

-- Tell other processes that wait for a task of this queue, once in a script. A user may lack the
-- right to publish, or a subscriber to listen: they poll.
local function tell()
  if not has_told then
    has_told = true
    local prefix = string.sub(KEYS[1], 1, -6) -- of all keys; KEYS[1] is the clock
    redis.pcall('PUBLISH', prefix .. 'arrivals', string.sub(READY, #prefix + 7))
  end
end

-- Make a waiting task that is due claimable, unless an earlier one of its thread is unfinished.
local function offer(task)
  if not task.thread or first_of(task.thread) == task.place then
    redis.call('ZADD', READY, -task.priority, task.place)
    tell()
  end
end

local function wait(task, delay)
  if delay > 0 then
    redis.call('ZADD', DELAYED, whole(now + delay), task.place)
  else
    offer(task)
  end
end

local function put_at_end(task, rank)
  task.place = string.format('%016.0f:', rank) .. id_of(task.place)
  if task.thread then
    redis.call('ZADD', THREADS, 0, task.thread .. '\0' .. task.place)
  end
end

-- Whether as many tasks are claimed as a claim with this limit allows; '' is no limit.
local function is_full(limit)
  return limit ~= '' and redis.call('ZCARD', CLAIMED) >= tonumber(limit)
end

-- Add to the number of claimed tasks of a worker. If one has ended for which a claim with a limit
-- may be waiting, tell.
local function tally(worker, number)
  if number < 0 and redis.call('DEL', FULL) == 1 then
    tell()
  end
  if redis.call('HINCRBY', WORKERS, worker, number) == 0 then
    redis.call('HDEL', WORKERS, worker)
  end
end

local function put_in_work(task, lease)
  redis.call('ZADD', CLAIMED, whole(now + lease), task.place)
  tally(task.worker, 1)
end

-- Remove a task from CLAIMED, or from READY if it was swept back. Return whether it was in CLAIMED:
-- its worker is to be told, with `tally`.
local function withdraw(task)
  if redis.call('ZREM', CLAIMED, task.place) == 1 then
    return true
  end
  redis.call('ZREM', READY, task.place)
  return false
end

local function take_out(task)
  if withdraw(task) then
    tally(task.worker, -1)
  end
end

-- After the end of a task: the next one of its thread may be claimed once it is due.
local function let_next(task)
  if not task.thread then
    return
  end
  redis.call('ZREM', THREADS, task.thread .. '\0' .. task.place)
  local place = first_of(task.thread)
  if place and not redis.call('ZSCORE', DELAYED, place)
    and not redis.call('ZSCORE', CLAIMED, place) then
    offer(load(id_of(place)))
  end
end

-- -- leases and delays -------------------------------------------------------------------------

-- `failure` is the error of the last attempt, as text; nil if its lease expired.
local function bury(task, failure, ended)
  task.token = nil
  task.ended = ended
  save(task)
  redis.call('ZADD', DEAD, 0, task.place)
  if failure then
    redis.call('HSET', ERRORS, id_of(task.place), failure)
  end
  let_next(task)
end

-- Return places, and when each was due.
local function take_due(set)
  local range = { '-inf', whole(now), 'WITHSCORES', 'LIMIT', 0, MAX_PER_STEP }
  local found = redis.call('ZRANGEBYSCORE', set, unpack(range))
  local places, dates = {}, {}
  for i = 1, #found, 2 do
    places[#places + 1] = found[i]
    dates[#dates + 1] = tonumber(found[i + 1])
  end
  if #places > 0 then
    redis.call('ZREM', set, unpack(places))
  end
  return places, dates
end

-- End the attempt of a task whose lease is over since `ended`.
local function expire(task, ended)
  tally(task.worker, -1)
  if task.attempt >= task.cap then
    bury(task, nil, ended)
  else
    offer(task)
  end
end

-- Sweep one step; return whether more tasks may be due.
local function sweep()
  local expired, ends = take_due(CLAIMED)
  for i, place in ipairs(expired) do
    expire(load(id_of(place)), ends[i])
  end
  local due = take_due(DELAYED)
  for _, place in ipairs(due) do
    offer(load(id_of(place)))
  end
  return #expired == MAX_PER_STEP or #due == MAX_PER_STEP
end

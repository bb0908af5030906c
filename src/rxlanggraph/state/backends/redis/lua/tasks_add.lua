-- Backend.tasks_add
-- KEYS: clock, sequence, the queue's. ARGV: serial, the tasks as a JSON list of lists: id, text,
--   key, priority, delay in us, thread, cap; null for no key and no thread.
-- Returns the position in that list, and the known id, of each task whose key has another id.

local tasks = cjson.decode(ARGV[2])
local rank = draw(#tasks)
local known = {}

local function find(id, key)
  if redis.call('HEXISTS', TASKS, id) == 1 then
    return id
  end
  return key and redis.call('HGET', NAMES, key)
end

local function present(value)
  return value ~= cjson.null and value or nil
end

for i, given in ipairs(tasks) do
  local id, text, key, thread = given[1], given[2], present(given[3]), present(given[6])
  local found = find(id, key)
  if found then
    if found ~= id then
      known[#known + 1] = i - 1
      known[#known + 1] = found
    end
  else
    local task = {
      place = string.rep('0', 16) .. ':' .. id,
      priority = given[4],
      cap = given[7],
      attempt = 0,
      worker = '',
      key = key,
      thread = thread,
    }
    put_at_end(task, rank + i - 1)
    save(task)
    redis.call('HSET', TEXTS, id, text)
    if key then
      redis.call('HSET', NAMES, key, id)
    end
    wait(task, given[5])
  end
end
return known

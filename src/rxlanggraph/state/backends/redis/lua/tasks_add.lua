-- Backend.tasks_add
-- KEYS: clock, sequence, the queue's. ARGV: serial, the tasks as a JSON list of lists: id, text,
--   key, priority, delay in us, thread, cap; null for no key and no thread.
-- Returns the position in that list, and the known id, of each task whose key has another id.

local tasks = cjson.decode(ARGV[2])
local rank = draw(#tasks)
local known = {}
local saved, texts, names = {}, {}, {}
local added, named = {}, {} -- what this call adds: ids, and the ids by key

local function find(id, key)
  if added[id] or redis.call('HEXISTS', TASKS, id) == 1 then
    return id
  end
  return key and (named[key] or redis.call('HGET', NAMES, key))
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
      added = now,
    }
    put_at_end(task, rank + i - 1)
    put(saved, id, cmsgpack.pack(task))
    put(texts, id, text)
    added[id] = true
    if key then
      put(names, key, id)
      named[key] = id
    end
    wait(task, given[5])
  end
end
write_all('HSET', TASKS, saved)
write_all('HSET', TEXTS, texts)
write_all('HSET', NAMES, names)
return known

-- Backend.tasks_results
-- KEYS: clock, lane, the queue's. ARGV: serial, 'id' or 'key', 'all' or 'some', then names of some.
-- Returns name and result of those that are complete, in turn.

local by_key = ARGV[2] == 'key'
local results = {}

local function add(name, result)
  if result then
    results[#results + 1] = name
    results[#results + 1] = result
  end
end

if ARGV[3] == 'some' then
  for i = 4, #ARGV do
    local id = ARGV[i]
    if by_key then
      id = redis.call('HGET', NAMES, ARGV[i])
    end
    add(ARGV[i], id and redis.call('HGET', RESULTS, id))
  end
elseif by_key then
  local names = redis.call('HGETALL', NAMES)
  for i = 1, #names, 2 do
    add(names[i], redis.call('HGET', RESULTS, names[i + 1]))
  end
else
  results = redis.call('HGETALL', RESULTS)
end
return results

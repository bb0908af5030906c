-- Backend.tasks_results, Backend.tasks_results_page
-- KEYS: clock, sequence, the queue's. ARGV: serial, then 'id' or 'key' and names; or 'page', the id
--   after which the page begins or '', and the length of the page.
-- Returns name and result of each completed task, alternately.

local results = {}

local function add(name, result)
  if result then
    results[#results + 1] = name
    results[#results + 1] = result
  end
end

if ARGV[2] == 'page' then
  local from = ARGV[3] == '' and '-' or '(' .. ARGV[3]
  for _, id in ipairs(redis.call('ZRANGEBYLEX', DONE, from, '+', 'LIMIT', 0, ARGV[4])) do
    add(id, redis.call('HGET', RESULTS, id))
  end
  return results
end

for i = 3, #ARGV do
  local id = ARGV[i]
  if ARGV[2] == 'key' then
    id = redis.call('HGET', NAMES, ARGV[i])
  end
  add(ARGV[i], id and redis.call('HGET', RESULTS, id))
end
return results

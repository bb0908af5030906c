-- Backend.task_complete, Backend.tasks_complete
-- KEYS: clock, sequence, the queue's. ARGV: serial, then id, token and result of each task.
-- Returns a string with 1 for each, or 0 if the token is not current and has not completed the task
--   either.

local ids = {}
for i = 2, #ARGV, 3 do
  ids[#ids + 1] = ARGV[i]
end
local tasks = {} -- by id: it may come twice
for i, stored in ipairs(read_all(TASKS, ids)) do
  tasks[ids[i]] = stored and cmsgpack.unpack(stored)
end
local saved, results, done, ended_of = {}, {}, {}, {}

local function complete(id, token, result)
  local task = tasks[id]
  if not task or task.token ~= token then
    return 0
  end
  if not task.done then
    if is_over(task) then
      return 0
    end
    if withdraw(task) then
      ended_of[task.worker] = (ended_of[task.worker] or 0) + 1
    end
    task.done = true
    task.ended = now
    put(saved, id, cmsgpack.pack(task))
    put(results, id, result)
    put(done, 0, id)
    let_next(task)
  end
  return 1
end

local complete_ones = {}
for i = 2, #ARGV, 3 do
  complete_ones[#complete_ones + 1] = complete(ARGV[i], ARGV[i + 1], ARGV[i + 2])
end
write_all('HSET', TASKS, saved)
write_all('HSET', RESULTS, results)
write_all('ZADD', DONE, done)
for worker, number in pairs(ended_of) do
  tally(worker, -number)
end
return table.concat(complete_ones)

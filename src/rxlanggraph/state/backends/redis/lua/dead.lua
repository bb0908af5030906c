-- What is dead in a queue, for the scripts that start with this (and with queue.lua).

-- Return the places of those of `ids` that are dead, in the order of adding; swept or not.
local function dead_among(ids)
  local seen, places = {}, {}
  for _, id in ipairs(ids) do
    local task = id and not seen[id] and load(id)
    if task then
      seen[id] = true
      if is_over(task) then
        take_out(task)
        bury(task, nil)
      end
      if redis.call('ZSCORE', DEAD, task.place) then
        places[#places + 1] = task.place
      end
    end
  end
  table.sort(places) -- told apart by their ranks, so by digits alone
  return places
end

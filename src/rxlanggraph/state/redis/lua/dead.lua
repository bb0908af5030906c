-- What is dead in a queue, for the scripts that start with this (and with queue.lua).

-- Return the places of those of `ids` that are dead, in the order of adding. To be swept before.
local function dead_among(ids)
  local seen, places = {}, {}
  for _, id in ipairs(ids) do
    local task = id and load(id)
    if task and not seen[id] and redis.call('ZSCORE', DEAD, task.place) then
      seen[id] = true
      places[#places + 1] = task.place
    end
  end
  table.sort(places) -- told apart by their ranks, so by digits alone
  return places
end

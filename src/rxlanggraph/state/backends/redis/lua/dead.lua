-- The dead tasks of a queue, for the scripts that include this part (and queue.lua).

-- Return the places of the dead tasks among `ids`, swept or not, in the order of adding.
local function dead_among(ids)
  local seen, places = {}, {}
  for _, id in ipairs(ids) do
    local task = id and not seen[id] and load(id)
    if task then
      seen[id] = true
      if is_over(task) then
        local ended = tonumber(redis.call('ZSCORE', CLAIMED, task.place))
        take_out(task)
        bury(task, nil, ended)
      end
      if redis.call('ZSCORE', DEAD, task.place) then
        places[#places + 1] = task.place
      end
    end
  end
  table.sort(places) -- ranks differ, so only digits are compared, whatever the server's locale
  return places
end

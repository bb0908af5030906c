-- What is told of values and locks: Backend.keys_page, Backend.locks_page
-- KEYS: clock, sequence, then values or locks. ARGV: serial, 'value' or 'lock'.
-- Returns of each its version or token, nil if it is gone, and its time to live in ms, or less than
--   0.

local described = {}
for i = 3, #KEYS do
  if ARGV[2] == 'value' then
    described[#described + 1] = redis.call('HGET', KEYS[i], 'version')
  else
    local held = redis.call('GET', KEYS[i])
    described[#described + 1] = held and string.match(held, '^%d+')
  end
  described[#described + 1] = redis.call('PTTL', KEYS[i])
end
return described

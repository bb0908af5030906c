-- Backend.read
-- KEYS: clock, sequence, then the values. ARGV: serial.
-- Returns text and version of each, nil where there is no such key.

local entries = {}
for i = 3, #KEYS do
  local entry = redis.call('HMGET', KEYS[i], 'text', 'version')
  entries[#entries + 1] = entry[1]
  entries[#entries + 1] = entry[2]
end
return entries

-- The version of what is kept in the namespace.
-- KEYS: clock, sequence, schema. ARGV: serial, the version to enter where there is none, or ''.
-- Returns the version that is there now, as text; nil if there is none.

local known = redis.call('GET', KEYS[3])
if not known and ARGV[2] ~= '' then
  redis.call('SET', KEYS[3], ARGV[2])
  return ARGV[2]
end
return known

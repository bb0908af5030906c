-- The version of the layout of the namespace.
-- KEYS: clock, sequence, schema. ARGV: serial, the version to set if there is none, or ''.
-- Returns the version, as text; nil if there is none.

local known = redis.call('GET', KEYS[3])
if not known and ARGV[2] ~= '' then
  redis.call('SET', KEYS[3], ARGV[2])
  return ARGV[2]
end
return known

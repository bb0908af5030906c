-- Backend.lock_release
-- KEYS: clock, sequence, lock. ARGV: serial, token.
-- Returns '1', or nil if the token does not hold the lock.

local before = answered()
if before then
  return before
end

local held = redis.call('GET', KEYS[3])
if not held or string.match(held, '^%d+') ~= ARGV[2] then
  return false
end
redis.call('DEL', KEYS[3])
return answer('1')

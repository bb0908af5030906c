-- Backend.lock_renew
-- KEYS: clock, sequence, lock. ARGV: serial, token, ttl in ms.
-- Returns 1, or 0 if the token does not hold the lock.

local held = redis.call('GET', KEYS[3])
if not held or string.match(held, '^%d+') ~= ARGV[2] then
  return 0
end
return redis.call('PEXPIRE', KEYS[3], ARGV[3])

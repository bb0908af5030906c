-- Backend.lock_acquire
-- KEYS: clock, sequence, lock. ARGV: serial, owner, ttl in ms.
-- Returns the token, as text; nil if another owner holds the lock.

local LOCK = KEYS[3]
local owner, ttl = ARGV[2], ARGV[3]

local held = redis.call('GET', LOCK)
local token
if held then
  local holder
  token, holder = string.match(held, '^(%d+) (.*)$')
  if holder ~= owner then
    return false
  end
else
  token = whole(draw(1))
end
redis.call('SET', LOCK, token .. ' ' .. owner, 'PX', ttl)
return token

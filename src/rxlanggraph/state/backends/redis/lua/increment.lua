-- Backend.increment
-- KEYS: clock, sequence, value, fence. ARGV: serial; how long a fence outlives its value, in ms;
--   key, by, token or ''.
-- Returns the sum, as text; or a list with the reason of a refusal and its details.

local before = answered()
if before then
  return before
end

local VALUE, FENCE = KEYS[3], KEYS[4]
local FENCE_RETENTION_MS, key, by, token = ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local known, highest = known_of(VALUE, FENCE)
local refused = refusal(highest, key, token)
if refused then
  return refused
end

-- The server adds 64-bit integers exactly, which Lua cannot.
local sum = redis.pcall('HINCRBY', VALUE, 'text', by)
if type(sum) == 'table' then
  if not (string.find(sum.err, 'not an integer') or string.find(sum.err, 'overflow')) then
    return sum -- another error, such as a lack of memory
  end
  local text = redis.call('HGET', VALUE, 'text')
  local integer = not text or string.match(text, '^-?%d+$')
  return { integer and 'out of range' or 'no integer', key, text }
end

local version = whole(draw(1))
token = token ~= '' and token or highest
if token then
  redis.call('HSET', VALUE, 'version', version, 'fence', token)
  local ttl = redis.call('PTTL', VALUE)
  if ttl > 0 then
    remember(FENCE, token, whole(ttl + FENCE_RETENTION_MS))
  end
else
  redis.call('HSET', VALUE, 'version', version)
end
return answer(math.abs(sum) < 2 ^ 53 and whole(sum) or redis.call('HGET', VALUE, 'text'))

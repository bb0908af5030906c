-- Backend.increment
-- KEYS: clock, lane, fences, value. ARGV: serial, key, by, token or ''.
-- Returns the sum, as text; or a list: why it is refused, and the particulars.

local before = answered()
if before then
  return before
end

local FENCES, VALUE = KEYS[3], KEYS[4]
local key, by, token = ARGV[2], ARGV[3], ARGV[4]

local refused = refusal(FENCES, key, token)
if refused then
  return refused
end

-- The server adds 64-bit integers exactly, which this language cannot.
local sum = redis.pcall('HINCRBY', VALUE, 'text', by)
if type(sum) == 'table' then
  if not (string.find(sum.err, 'not an integer') or string.find(sum.err, 'overflow')) then
    return sum -- out of memory, for one
  end
  local text = redis.call('HGET', VALUE, 'text')
  local integer = not text or string.match(text, '^-?%d+$')
  return { integer and 'out of range' or 'no integer', key, text }
end
redis.call('HSET', VALUE, 'version', whole(draw(1)))
remember(FENCES, key, token)
return answer(math.abs(sum) < 2 ^ 53 and whole(sum) or redis.call('HGET', VALUE, 'text'))

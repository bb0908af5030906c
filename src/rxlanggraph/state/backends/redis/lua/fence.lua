-- Fencing tokens (signed 64-bit integers, as decimal text), for the writes that include this part.

-- Compare as text: a double is not exact beyond 2^53.
local function less(one, other)
  local negative = string.sub(one, 1, 1) == '-'
  if negative ~= (string.sub(other, 1, 1) == '-') then
    return negative
  end
  if negative then
    one, other = string.sub(other, 2), string.sub(one, 2)
  end
  if #one ~= #other then
    return #one < #other
  end
  return one < other
end

-- Return the refusal if `highest`, the highest token that has written `key`, if any, is newer than
-- `token` ('' for none).
local function refusal(highest, key, token)
  if token ~= '' and highest and less(token, highest) then
    return { 'stale token', key, token, highest }
  end
end

-- Return the version of a key and the highest token that wrote it, each nil or false if there is
-- none. The token is stored with the value, and after the end of the value for a while in a string
-- of its own, the fence.
local function known_of(value, fence)
  local known = redis.call('HMGET', value, 'version', 'fence')
  if not known[1] then
    known[2] = redis.call('GET', fence)
  end
  return known[1], known[2]
end

-- Store a token for `time` milliseconds, independently of the value.
local function remember(fence, token, time)
  if token then
    redis.call('SET', fence, token, 'PX', time)
  end
end

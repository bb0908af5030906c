-- Fencing tokens (signed 64-bit integers, as decimal text), for the writes that start with this.

-- Compared as text: a double would confuse what lies beyond 2^53.
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

-- Return the refusal if a newer token than `token` ('' for none) has written `key`.
local function refusal(fences, key, token)
  if token ~= '' then
    local highest = redis.call('HGET', fences, key)
    if highest and less(token, highest) then
      return { 'stale token', key, token, highest }
    end
  end
end

local function remember(fences, key, token)
  if token ~= '' then
    redis.call('HSET', fences, key, token)
  end
end

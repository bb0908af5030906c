-- The counter of the namespace (rule 3 of the contract), for scripts that include this part.
--
-- A hybrid logical clock (Kulkarni et al., 2014): the server's microseconds, or the last number
-- plus one if that is greater. So it keeps growing even if the server has lost data: a second of
-- its log in a power cut, the latest writes in a failover, or everything. Its numbers are integers
-- below 2^53, which a double holds exactly, until the year 2255.

local CLOCK = KEYS[1]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function whole(number)
  return string.format('%.0f', number)
end

-- Draw `count` consecutive numbers; return the first.
local function draw(count)
  local first = now
  local last = tonumber(redis.call('GETSET', CLOCK, whole(first + count - 1)) or 0)
  if last >= first then
    first = last + 1
    redis.call('SET', CLOCK, whole(first + count - 1))
  end
  return first
end

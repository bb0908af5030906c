-- The counter of the namespace (rule 3 of the contract), for the scripts that start with this.
--
-- A hybrid logical clock (Kulkarni et al., 2014): the server's microseconds, or one more than the
-- last number where that is not less. So it goes on growing even over what a server has lost: a
-- second of its log after a power cut, the tail of its data after a failover, or all of it.
-- Its numbers are whole and below 2^53, which a double holds exactly, until the year 2255.

local CLOCK = KEYS[1]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function whole(number)
  return string.format('%.0f', number)
end

-- Take `count` numbers that follow each other; return the first.
local function draw(count)
  local first = now
  local last = tonumber(redis.call('GETSET', CLOCK, whole(first + count - 1)) or 0)
  if last >= first then
    first = last + 1
    redis.call('SET', CLOCK, whole(first + count - 1))
  end
  return first
end

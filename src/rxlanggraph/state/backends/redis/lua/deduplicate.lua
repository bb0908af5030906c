-- Deduplication, for the writes that include this part. A client that gets no answer sends a
-- request again, and cannot know whether the request or the answer was lost; it must take effect
-- once.
--
-- A client has a few connections. Each sends one request at a time and numbers them; the last
-- number and its answer are stored here (as in the slot table of NFSv4.1, RFC 8881, section
-- 2.10.6.1). A sequence expires after its last write, much later than a client stops repeating a
-- request.

local SEQUENCE, SERIAL = KEYS[2], ARGV[1]

-- Return the answer to an earlier copy of this request; nil: there was none.
local function answered()
  local kept = redis.call('GET', SEQUENCE)
  if not kept then
    return nil
  end
  local serial, answer = string.match(kept, '^(%d+) (.*)$')
  if tonumber(serial) > tonumber(SERIAL) then
    -- The client has given this request up and sent later ones: it no longer waits for the answer.
    error('overtaken by a later request of its sequence')
  end
  if serial ~= SERIAL then
    return nil
  end
  -- A write, so that a client that waits for replicas waits for that of the first copy too.
  redis.call('PEXPIRE', SEQUENCE, 600000)
  return answer
end

-- Store the answer, a string, and return it. The last step of a write.
local function answer(text)
  redis.call('SET', SEQUENCE, SERIAL .. ' ' .. text, 'PX', 600000) -- ten minutes
  return text
end

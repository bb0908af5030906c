-- Exactly once, for the writes that start with this, though their request may come twice: a client
-- that gets no answer sends it again, and cannot know which of the two was lost.
--
-- A client has a few connections. Each sends one request at a time and numbers them; here the last
-- number and its answer are kept (the slot table of NFSv4.1, RFC 8881, section 2.10.6.1). A sequence
-- is forgotten ten minutes after its last write: many times as long as a client repeats a request.

local SEQUENCE, SERIAL = KEYS[2], ARGV[1]

-- Return the answer that this request got when it came before; nil: it is new.
local function answered()
  local kept = redis.call('GET', SEQUENCE)
  if not kept then
    return nil
  end
  local serial, answer = string.match(kept, '^(%d+) (.*)$')
  if tonumber(serial) > tonumber(SERIAL) then
    -- Its client has given it up and gone on: its answer is not waited for.
    error('overtaken by a later request of its sequence')
  end
  return serial == SERIAL and answer or nil
end

-- Keep the answer, a string, and return it. The last thing that a write does.
local function answer(text)
  redis.call('SET', SEQUENCE, SERIAL .. ' ' .. text, 'PX', 600000)
  return text
end

-- Backend.commit
-- KEYS: clock, lane, fences, then the value of each key that is changed or checked.
-- ARGV: serial, then for each of those keys: its name; the version it must have, or '';
--   'set', 'delete' or 'keep'; the text; the time to live in ms, or ''; the token, or ''.
-- Returns the versions before and after of each change, as text; nil if a check failed; or a list:
--   why it is refused, and the particulars.

local before = answered()
if before then
  return before
end

local FENCES = KEYS[3]
local count = #KEYS - 3
local function argument(i, which)
  return ARGV[6 * i - 5 + which]
end

for i = 1, count do
  local refused = refusal(FENCES, argument(i, 1), argument(i, 6))
  if refused then
    return refused
  end
end

local versions = {}
for i = 1, count do
  versions[i] = redis.call('HGET', KEYS[3 + i], 'version') or '0'
  local expected = argument(i, 2)
  if expected ~= '' and expected ~= versions[i] then
    return false
  end
end

local version
local function set(value, known, text, ttl)
  version = version or whole(draw(1))
  redis.call('HSET', value, 'text', text, 'version', version)
  if ttl ~= '' then
    redis.call('PEXPIRE', value, ttl)
  elseif known ~= '0' then
    redis.call('PERSIST', value)
  end
  return version
end

local written = {}
for i = 1, count do
  local value, what = KEYS[3 + i], argument(i, 3)
  if what ~= 'keep' then
    local after = '0'
    if what == 'set' then
      after = set(value, versions[i], argument(i, 4), argument(i, 5))
    elseif versions[i] ~= '0' then
      redis.call('DEL', value)
    end
    remember(FENCES, argument(i, 1), argument(i, 6))
    written[#written + 1] = versions[i] .. ' ' .. after
  end
end
return answer(table.concat(written, ' '))

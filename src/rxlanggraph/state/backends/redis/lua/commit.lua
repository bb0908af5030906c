-- Backend.commit
-- KEYS: clock, sequence, then value and fence of each key that is changed or checked.
-- ARGV: serial; how long a fence outlives its value, in ms; then for each of those keys: its name;
--   the version it must have, or ''; 'set', 'delete' or 'keep'; the text; the time to live in ms,
--   or ''; the token, or ''.
-- Returns the versions of each changed key before and after, as text; nil if a check failed; or a
--   list with the reason of a refusal and its details.

local before = answered()
if before then
  return before
end

local FENCE_RETENTION_MS = ARGV[2]
local count = (#KEYS - 2) / 2
local function argument(i, which)
  return ARGV[6 * i - 4 + which]
end

local versions, tokens = {}, {}
for i = 1, count do
  local version, highest = known_of(KEYS[2 * i + 1], KEYS[2 * i + 2])
  local token = argument(i, 6)
  local refused = refusal(highest, argument(i, 1), token)
  if refused then
    return refused
  end
  versions[i] = version or '0'
  tokens[i] = token ~= '' and token or highest
end

for i = 1, count do
  local expected = argument(i, 2)
  if expected ~= '' and expected ~= versions[i] then
    return false
  end
end

local version
local function set(value, fence, i)
  version = version or whole(draw(1))
  local text, ttl, token = argument(i, 4), argument(i, 5), tokens[i]
  if token then
    redis.call('HSET', value, 'text', text, 'version', version, 'fence', token)
  else
    redis.call('HSET', value, 'text', text, 'version', version)
  end
  if ttl ~= '' then
    redis.call('PEXPIRE', value, ttl)
    remember(fence, token, whole(ttl + FENCE_RETENTION_MS))
  elseif versions[i] ~= '0' then
    redis.call('PERSIST', value)
  end
  return version
end

local written = {}
for i = 1, count do
  local value, fence, what = KEYS[2 * i + 1], KEYS[2 * i + 2], argument(i, 3)
  if what ~= 'keep' then
    local after = '0'
    if what == 'set' then
      after = set(value, fence, i)
    else
      if versions[i] ~= '0' then
        redis.call('DEL', value)
      end
      remember(fence, tokens[i], FENCE_RETENTION_MS)
    end
    written[#written + 1] = versions[i] .. ' ' .. after
  end
end
return answer(table.concat(written, ' '))

-- Migrates the namespace from version 1: tasks have times (queue.lua), `since` now.
-- KEYS: clock, sequence, schema, since. ARGV: serial, the version before, the version after.
-- Returns nothing. Does nothing if the namespace has another version: it was migrated meanwhile.

if redis.call('GET', KEYS[3]) == ARGV[2] then
  redis.call('SET', KEYS[4], whole(now))
  redis.call('SET', KEYS[3], ARGV[3])
end

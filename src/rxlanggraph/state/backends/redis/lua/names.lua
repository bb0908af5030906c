-- Names of keys on the server: Backend.queues_page, Backend.keys_page, Backend.locks_page
-- KEYS: clock, sequence. ARGV: serial, the cursor, a pattern, and about how many to look at.
-- Returns a cursor for the next call, '0' after the last, and the names.

local reply = redis.call('SCAN', ARGV[2], 'MATCH', ARGV[3], 'COUNT', ARGV[4])
table.insert(reply[2], 1, reply[1])
return reply[2]

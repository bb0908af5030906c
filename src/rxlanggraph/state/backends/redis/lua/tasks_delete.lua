-- Backend.tasks_delete
-- KEYS: clock, sequence, the queue's. ARGV: serial; the states, separated by blanks; then the ids.
-- Returns, as text, how many were deleted.

local before = answered()
if before then
  return before
end

local unwanted = {}
for state in string.gmatch(ARGV[2], '%a+') do
  unwanted[state] = true
end

local count = 0
for i = 3, #ARGV do
  local task = load(ARGV[i])
  if task and unwanted[state_of(task)] then
    forget(ARGV[i], task)
    count = count + 1
  end
end
return answer(tostring(count))

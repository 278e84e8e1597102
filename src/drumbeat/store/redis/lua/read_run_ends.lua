-- Returns recorded runs of an instance that ended lately, a page at a time. Only history is ordered by end: with its first page,
-- the newest dead letters and the attempts of live jobs are examined, up to a limit.
-- KEYS: 1 the prefix
-- ARGV: 1 instance, 2 since (µs), 3 how many of history were seen, 4 how many more to examine
-- returns: how many of history were examined; then of each run queue, task, outcome, 1 if its job died, run_at or token, started_at
-- or null, finished_at, all as texts
-- include: _transitions

local MAX_OTHERS = 5000
local instance, since = ARGV[1], tonumber(ARGV[2])
local found = {0}

local function add(body, outcome, died, due, started, finished)
  local task, queue = match(body, HEADER_PATTERN)
  if queue then
    append(found, queue, task, outcome, died and '1' or '0', due, started, finished)
  end
end

local function add_attempts(id, body)
  for _, attempt in ipairs(call('LRANGE', P .. 'attempts:' .. id, 0, -1)) do
    local token, who, outcome, started, finished = match(attempt, '^%[(%d+),"(.-)","(%a+)",(%-?%w+),(%d+)')
    if who == instance and tonumber(finished) >= since then
      add(body, outcome, false, token, started, finished)
    end
  end
end

local function add_ended(ids)
  local bodies, dones = fetch('job:', ids), fetch('ended:', ids)
  for i, id in ipairs(ids) do
    local body, done = bodies[i], dones[i]
    local finished, state, outcome, started, who
    if body and done then
      finished, state, outcome, started, who = match(done, '^%[(%-?%d+),"(%a+)","(%a+)",(%-?%w+),"(%w+)"')
    end
    local run_at, failures, crashes = match(done or '', '\n(%-?%d+),(%d+),(%d+),%d+,%d+\n')
    if who == instance and tonumber(finished) >= since then
      add(body, outcome, state == 'dead', run_at or match(body, DUE_AT_PATTERN), started, finished)
    end
    if body and run_at and tonumber(failures) + tonumber(crashes) > 0 then
      add_attempts(id, body)
    end
  end
end

local ids = call('ZRANGEBYSCORE', P .. 'history', ARGV[2], '+inf', 'LIMIT', ARGV[3], ARGV[4])
found[1] = #ids
add_ended(ids)
if ARGV[3] == '0' then
  add_ended(call('ZREVRANGE', P .. 'dead', 0, MAX_OTHERS - 1))
  if call('HLEN', P .. 'live_state') <= MAX_OTHERS then
    local live = call('HKEYS', P .. 'live_state')
    local bodies = fetch('job:', live)
    for i, id in ipairs(live) do
      if bodies[i] then
        add_attempts(id, bodies[i])
      end
    end
  end
end
return found

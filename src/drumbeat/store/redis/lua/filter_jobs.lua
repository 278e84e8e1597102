-- Filters these jobs, or as many of them as can be read quickly.
-- KEYS: 1 the prefix
-- ARGV: wanted: 1 state (live: pending or running), 2 view, 3 task, 4 queue, 5 key, 6 a part of the error's type or message, 7 the same as in
-- JSON, 8 schedule, 9 instance, 10 workflow ('' for any); 11 after how many bytes to stop; then ids
-- returns: how many were examined; then id and displayed state of each match, flat
-- include: _find_job

local state, view, task, queue, key, part, written = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local schedule, instance, workflow, enough = ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11])
local key_written = key ~= '' and cjson.encode(key)

-- Texts are searched before they are decoded.
local function is_of(body, its_task, its_queue)
  if (task ~= '' and its_task ~= task) or (queue ~= '' and its_queue ~= queue) then
    return false
  end
  if key ~= '' and (sub(body, 1, 1) == '-' or not find(body, key_written, 1, true) or decode_header(body)[6] ~= key) then
    return false
  end
  if workflow ~= '' and decode_header(body)[17] ~= workflow then
    return false
  end
  return schedule == '' or (find(body, '"' .. schedule .. '"', 1, true) and decode_header(body)[13] == schedule)
end

local function has_part(failure)
  return type(failure) == 'table' and type(failure.type) == 'string' and type(failure.message) == 'string'
    and (find(failure.type, part, 1, true) or find(failure.message, part, 1, true))
end

local function view_of_ended(done)
  local its_state = ended_state(done)
  if view ~= '' or (state ~= '' and its_state ~= state) then
    return nil
  end
  if instance ~= '' and match(done, '^%[%-?%d+,"%a+",[^,]*,[^,]*,"(%w+)"') ~= instance then
    return nil
  end
  if part ~= '' and not (find(done, written, 1, true) and has_part(decode_table(match(done, '^[^\n]*'))[9])) then
    return nil
  end
  return its_state
end

local by_run = state == 'pending' or state == 'running'
local only_ended = state ~= '' and state ~= 'live' and not by_run
local function view_of_live(id, text, body, its_queue, priority)
  -- Most were never claimed and have no live state.
  local more = text and parse_live_state(text)
  if only_ended or (part ~= '' and not (more and find(more.error, written, 1, true) and has_part(decode_table(more.error)))) then
    return nil
  end
  local word = 'waiting'
  if not more or more.blocked_on == '' then
    local lane = lane_of(body)
    local moment = its_queue and safe_read('ZSCORE', due_key(its_queue, priority, lane), id)
    if moment and lane then  -- where jobs have an order, the score is the place
      moment = more and more.run_at or match(body, DUE_AT_PATTERN)
    end
    if not moment then
      word = 'running'
    elseif tonumber(moment) <= now then
      word = 'ready'
    else
      word = more and more.failures + more.crashes > 0 and 'retrying' or 'scheduled'
    end
  end
  if (view ~= '' and word ~= view) or (by_run and (word == 'running') ~= (state == 'running')) then
    return nil
  end
  if instance ~= '' and (word ~= 'running' or find_runner(id) ~= instance) then
    return nil
  end
  return word
end

local found, read = {0}, 0
local function scan(ids)
  local bodies, dones, mores = fetch('job:', ids), fetch('ended:', ids), bulk_get('HMGET', P .. 'live_state', ids)
  for i, id in ipairs(ids) do
    local body = bodies[i]
    if body then
      read = read + #body + #(dones[i] or '')
      local its_task, its_queue, priority = match(body, HEADER_PATTERN)
      if is_of(body, its_task, its_queue) then
        local word = dones[i] and view_of_ended(dones[i]) or not dones[i] and view_of_live(id, mores[i], body, its_queue, priority)
        if word then
          append(found, id, word)
        end
      end
    end
  end
end

-- A few at a time: large jobs would block the server.
local BATCH_SIZE, first = 50, 12
while first <= #ARGV and read < enough do
  local last = math.min(first + BATCH_SIZE - 1, #ARGV)
  scan({unpack(ARGV, first, last)})
  found[1], first = last - 11, last + 1
end
return found

-- Returns jobs, on request with only the beginning of long texts, and only as many as can be read quickly. A hash field is read
-- as a whole: 500 jobs with the largest arguments are 131 MB, which would block the server.
-- KEYS: 1 the prefix
-- ARGV: 1 how many bytes of arguments, result and progress ('' for all), 2 after how many bytes to stop, then ids
-- returns: for each nothing (no such job), or: body, state, live state or end record, and of a running job instance, token, 1 if its
-- cancellation was requested, progress; fewer than there are ids where it stopped
-- include: _find_job

local most, enough, read = tonumber(ARGV[1]) or math.huge, tonumber(ARGV[2]), 0

-- Removes a character that was cut off.
local function cut_text(text, last)
  return (string.gsub(sub(text, 1, last), '[\192-\255][\128-\191]*$', ''))
end

-- Returns the beginning of a JSON string; an escape that was cut off is removed.
local function shorten(text, at)
  local part = sub(text, at, at + most)
  for place = #part, math.max(2, #part - 4), -1 do
    if sub(part, place, place) == '\\' then
      local first = place
      while sub(part, first - 1, first - 1) == '\\' do
        first = first - 1
      end
      if (place - first) % 2 == 0 and (place == #part or sub(part, place + 1, place + 1) == 'u') then
        part = sub(part, 1, place - 1)
      end
      break
    end
  end
  return cut_text(part, #part) .. '"'
end

local function short_body(body)
  local last = (find(body, '\n', 1, true) or 0) + most
  return #body > last and cut_text(body, last) or body
end

local function short_progress(text)
  return text and #text > most + 2 and shorten(text, 1) or text
end

-- A job with a result has no error.
local RESULT = '^%[%-?%d+,"%a+",[^,]*,[^,]*,[^,]*,%d+,"'
local function short_done(done)
  local line, facts, progress = match(done, '^([^\n]*)(\n?[^\n]*\n?)(.*)$')
  local _, at = find(line, RESULT)
  if at and #line > at + most + 200 then
    line = sub(line, 1, at - 1) .. shorten(line, at) .. ']'
  end
  return line .. facts .. short_progress(progress)
end

local function describe_job(id)
  local job = find_job(id)
  if not job then
    return false
  end
  read = read + #job.body + #(job.done or '')
  local facts = {short_body(job.body), job.state, job.done and short_done(job.done) or call('HGET', P .. 'live_state', id)}
  if job.state == 'running' then
    local who = job.instance or ''
    append(facts, who, job.token or 0, safe_read('SISMEMBER', P .. 'cancels:' .. who, id) or 0,
      short_progress(call('HGET', P .. 'progress', id)))
  end
  return facts
end

local found = {}
for i = 3, #ARGV do
  found[i - 2] = describe_job(ARGV[i])
  if read >= enough then
    break
  end
end
return found

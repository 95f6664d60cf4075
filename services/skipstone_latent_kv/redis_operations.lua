-- What can be asked of the catalog. Third part of every call; see redis_catalog.py.
--
-- Each operation takes its arguments as text and returns a list; Redis runs a whole call before it
-- looks at the next, so a call is a transaction.

-- Rows that one call looks at: Redis serves nobody else meanwhile.
local MOST_ROWS = 500

-- Removes entries whose lease or time to live is over; returns how many were looked at.
local function remove_over(set, latest, most)
  local names = call('ZRANGEBYSCORE', BASE .. set, '-inf', latest, 'LIMIT', 0, most)
  local removed = 0
  for _, name in ipairs(names) do
    local row = load(split(name))
    local kind = row and ended(row)
    if kind then
      remove(row, kind)
      removed = removed + 1
    elseif not row then
      call('ZREM', BASE .. set, name)
    end
  end
  return removed, #names == most
end

local operations = {}

-- Notes the name of a value that is about to be written, until a time when it must be in use.
function operations.begin(name, seconds)
  call('ZADD', BASE .. 'pending', NOW + tonumber(seconds), name)
  return {}
end

-- Makes a value the snapshot of a step. 'late': its name is no longer noted; 'full': no room.
function operations.put(namespace, id, step, value, bytes, checksum, lease_s, quota, total, high, low)
  local fresh = { namespace = namespace, id = id, created = NOW, reads = 0, pinned = false,
    skip_steps = 0, bytes = 0, steps = {} }
  if call('ZREM', BASE .. 'pending', name_of(fresh) .. ' ' .. value) == 0 then
    return { 'late' }
  end
  -- Ended leases first: they make room without an eviction.
  remove_over('leases', NOW, MOST_ROWS)
  local row = live(namespace, id) or fresh
  local before = row.steps[step]
  local growth = tonumber(bytes) - (before and before[2] or 0)
  local victims, full, used =
    make_room(row, growth, tonumber(quota), tonumber(total), tonumber(high), tonumber(low))
  if not victims then
    discard(row, value)
    return { 'full', full, string.format('%.0f', used) }
  end
  for _, victim in ipairs(victims) do
    remove(victim, 'capacity')
  end
  if row == fresh then
    call('ZADD', BASE .. 'ids:' .. namespace, 0, id)
    call('SADD', BASE .. 'namespaces', namespace)
  else
    unlink(row)
  end
  if before then
    discard(row, before[1])
  end
  if row == fresh or row.lease then
    row.lease = NOW + tonumber(lease_s)
  end
  row.accessed = row.accessed or NOW
  row.bytes = row.bytes + growth
  row.skip_steps = math.max(row.skip_steps, tonumber(step))
  row.steps[step] = { value, tonumber(bytes), checksum }
  count_use(row)
  add_totals(namespace, row == fresh and 1 or 0, growth, before and 0 or 1, 0)
  save(row)
  link(row)
  return { 'ok' }
end

-- Counts a read of a snapshot and tells its value; a reference to other bytes is no use of it.
function operations.use(namespace, id, step, checksum)
  local row = find(namespace, id)
  local snapshot = row and row.steps[step]
  if not snapshot then
    return {}
  end
  if checksum == '' or checksum == snapshot[3] then
    leave_order(row)
    row.accessed = NOW
    row.reads = row.reads + 1
    count_use(row)
    save(row)
    enter_order(row)
  end
  return { snapshot[1], string.format('%.0f', snapshot[2]), snapshot[3] }
end

function operations.get(namespace, id)
  local row = find(namespace, id)
  return row and told(row) or {}
end

function operations.commit(namespace, id)
  local row = find(namespace, id)
  if row and row.lease then
    unlink(row)
    row.lease = nil
    add_totals(namespace, 0, 0, 0, 1)
    save(row)
    link(row)
  end
  return row and told(row) or {}
end

-- When the lease ends; an empty text for a committed entry.
function operations.renew(namespace, id, lease_s)
  local row = find(namespace, id)
  if not row then
    return {}
  end
  if not row.lease then
    return { '' }
  end
  row.lease = NOW + tonumber(lease_s)
  save(row)
  link(row)
  return { string.format('%.6f', row.lease) }
end

function operations.pin(namespace, pinned, ...)
  local found = {}
  for i, id in ipairs({ ... }) do
    local row = live(namespace, id)
    found[i] = row and 1 or 0
    if row and row.pinned ~= (pinned == '1') then
      unlink(row)
      row.pinned = pinned == '1'
      save(row)
      link(row)
    end
  end
  return found
end

-- Commits entries with the history they had in another store: id, creation, last use, reads, pin,
-- and the numbers that stand for both times, of each.
function operations.adopt(namespace, ...)
  local told, found = { ... }, {}
  for i = 1, #told, 7 do
    local row = live(namespace, told[i])
    found[#found + 1] = row and 1 or 0
    if row then
      unlink(row)
      if row.lease then
        row.lease = nil
        add_totals(namespace, 0, 0, 0, 1)
      end
      row.created, row.accessed = tonumber(told[i + 1]), tonumber(told[i + 2])
      row.reads, row.pinned = tonumber(told[i + 3]), told[i + 4] == '1'
      row.first_use, row.last_use = tonumber(told[i + 5]), tonumber(told[i + 6])
      save(row)
      link(row)
    end
  end
  return found
end

function operations.delete(namespace, ...)
  local found = {}
  for i, id in ipairs({ ... }) do
    local row = live(namespace, id)
    found[i] = row and 1 or 0
    if row then
      remove(row, 'deleted')
    end
  end
  return found
end

-- Ids after one, at most so many, and whether more may follow.
local function ids_after(namespace, after, most)
  local from = after == '' and '-' or '(' .. after
  local ids = call('ZRANGEBYLEX', BASE .. 'ids:' .. namespace, from, '+', 'LIMIT', 0, most)
  return ids, #ids == most
end

-- Removes entries after an id: how many, and the last one looked at where more follow.
function operations.clear(namespace, after)
  local ids, more = ids_after(namespace, after, MOST_ROWS)
  local count = 0
  for _, id in ipairs(ids) do
    local row = live(namespace, id)
    if row then
      remove(row, 'deleted')
      count = count + 1
    end
  end
  return { count, more and ids[#ids] or '' }
end

-- Entries after an id. First the id to go on after, empty when none follow.
function operations.list(namespace, after, size, uncommitted)
  local ids, more = ids_after(namespace, after, MOST_ROWS)
  local answer = { '' }
  for i, id in ipairs(ids) do
    local row = find(namespace, id)
    if row and (not row.lease or uncommitted == '1') then
      if #answer > tonumber(size) then
        answer[1] = ids[i - 1]
        return answer
      end
      answer[#answer + 1] = told(row)
    end
  end
  answer[1] = more and ids[#ids] or ''
  return answer
end

function operations.stats(namespace)
  local totals = call('HMGET', BASE .. 'totals:' .. namespace, 'committed', 'snapshots', 'bytes')
  local now = '(' .. string.format('%.6f', NOW)
  local leases = call('ZCOUNT', BASE .. 'leases:' .. namespace, now, '+inf')
  return { totals[1] or '0', leases, totals[2] or '0', totals[3] or '0' }
end

-- Entries and bytes of all namespaces, then removals by kind.
function operations.totals(...)
  local answer = call('HMGET', META, 'entries', 'bytes')
  for _, kind in ipairs({ ... }) do
    answer[#answer + 1] = call('HGET', META, 'removed:' .. kind)
  end
  for i = 1, #answer do
    answer[i] = answer[i] or '0'
  end
  return answer
end

-- Events after a number: the number of the last event of all, then number, kind and entry of each.
function operations.events(after, most)
  local answer = { call('HGET', META, 'sequence') or '0' }
  for _, event in ipairs(call('XRANGE', BASE .. 'events', '(' .. after .. '-0', '+', 'COUNT', most)) do
    answer[#answer + 1] = { event[1], event[2][2], event[2][4], event[2][6] }
  end
  return answer
end

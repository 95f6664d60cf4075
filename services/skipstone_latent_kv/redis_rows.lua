#!lua flags=allow-oom
-- Rows of the catalog, the orders they stand in, and their removal. First part of every call.
--
-- allow-oom: the catalog grows by a few hundred bytes where a value takes megabytes, and Redis
-- refuses values by itself when it is full. Reads and removals must go on then.
--
-- The layout is told in redis_catalog.py. KEYS[1] is the key of the totals. ARGV is the operation,
-- now (seconds; empty: the clock of Redis), time to live (seconds; 0: none), events to keep, policy,
-- half life, and what the operation takes.

local META = KEYS[1]
local BASE = string.sub(META, 1, -5)
local NOW, TTL, HISTORY = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local POLICY, HALF_LIFE = ARGV[5], tonumber(ARGV[6])
local call = redis.call

if not NOW then
  local time = call('TIME')
  NOW = tonumber(time[1]) + tonumber(time[2]) / 1e6
end

-- One policy orders all entries, whichever process asks.
local kept = call('HMGET', META, 'policy', 'half_life')
if kept[1] then
  POLICY, HALF_LIFE = kept[1], tonumber(kept[2])
end

-- Names of values that nothing refers to any more; the caller deletes them, then says so.
local garbage = {}

local function name_of(row)
  return row.namespace .. '/' .. row.id
end

local function discard(row, value)
  local name = name_of(row) .. ' ' .. value
  call('SADD', BASE .. 'trash', name)
  garbage[#garbage + 1] = name
end

local function load(namespace, id)
  local packed = call('HGET', BASE .. 'rows:' .. namespace, id)
  if not packed then
    return nil
  end
  local row = cmsgpack.unpack(packed)
  row.namespace, row.id = namespace, id
  return row
end

local function save(row)
  local namespace, id = row.namespace, row.id
  row.namespace, row.id = nil, nil
  call('HSET', BASE .. 'rows:' .. namespace, id, cmsgpack.pack(row))
  row.namespace, row.id = namespace, id
end

-- Why an entry is over, nil while it is not.
local function ended(row)
  if row.lease then
    return row.lease <= NOW and 'lease_ended' or nil
  end
  if TTL > 0 and not row.pinned and row.created + TTL <= NOW then
    return 'expired'
  end
  return nil
end

local function evictable(row)
  return not row.lease and not row.pinned
end

-- The lowest score goes first; see eviction_policies.py, whose ranks these are.
local function score(row)
  if POLICY == 'lru' then
    return row.last_use
  elseif POLICY == 'fifo' then
    return row.first_use
  end
  local benefit = (row.reads + 1) * row.skip_steps
  if POLICY == 'lcbfu' then
    return benefit
  end
  if benefit == 0 then
    return '-inf'
  end
  return math.log(benefit) / math.log(2) + row.last_use / HALF_LIFE
end

-- Equal scores stand in the order of their members, so the last use comes first in them.
local function place(row)
  return string.format('%016.0f %s', row.last_use, name_of(row))
end

local function enter_order(row)
  if evictable(row) then
    local member, rank = place(row), score(row)
    call('ZADD', BASE .. 'order', rank, member)
    call('ZADD', BASE .. 'order:' .. row.namespace, rank, member)
  end
end

local function leave_order(row)
  if evictable(row) then
    local member = place(row)
    call('ZREM', BASE .. 'order', member)
    call('ZREM', BASE .. 'order:' .. row.namespace, member)
  end
end

-- Everything that leads to a row, from what it says of itself.
local function link(row)
  local name = name_of(row)
  enter_order(row)
  if row.lease then
    call('ZADD', BASE .. 'leases', row.lease, name)
    call('ZADD', BASE .. 'leases:' .. row.namespace, row.lease, row.id)
  elseif not row.pinned then
    call('ZADD', BASE .. 'created', row.created, name)
  end
end

local function unlink(row)
  local name = name_of(row)
  leave_order(row)
  if row.lease then
    call('ZREM', BASE .. 'leases', name)
    call('ZREM', BASE .. 'leases:' .. row.namespace, row.id)
  elseif not row.pinned then
    call('ZREM', BASE .. 'created', name)
  end
end

local function add_totals(namespace, entries, bytes, snapshots, committed)
  local totals = BASE .. 'totals:' .. namespace
  call('HINCRBY', META, 'entries', entries)
  call('HINCRBY', META, 'bytes', bytes)
  call('HINCRBY', totals, 'bytes', bytes)
  call('HINCRBY', totals, 'snapshots', snapshots)
  call('HINCRBY', totals, 'committed', committed)
end

-- The number of the last event that is kept.
local function last_event()
  local last = call('XREVRANGE', BASE .. 'events', '+', '-', 'COUNT', 1)[1]
  return last and tonumber(string.match(last[1], '^%d+')) or 0
end

local function publish(kind, namespace, id)
  local sequence = call('HINCRBY', META, 'sequence', 1)
  local last = sequence == 1 and last_event() or 0
  if last > 0 then
    -- The number was lost and the events were not. One is left out, so that watchers see a gap.
    sequence = last + 2
    call('HSET', META, 'sequence', sequence)
  end
  call('XADD', BASE .. 'events', 'MAXLEN', '=', HISTORY, string.format('%.0f-0', sequence),
    'kind', kind, 'namespace', namespace, 'entry_id', id)
end

local function remove(row, kind)
  local namespace, snapshots = row.namespace, 0
  unlink(row)
  call('HDEL', BASE .. 'rows:' .. namespace, row.id)
  call('ZREM', BASE .. 'ids:' .. namespace, row.id)
  for _, snapshot in pairs(row.steps) do
    discard(row, snapshot[1])
    snapshots = snapshots + 1
  end
  add_totals(namespace, -1, -row.bytes, -snapshots, row.lease and 0 or -1)
  if call('ZCARD', BASE .. 'ids:' .. namespace) == 0 then
    call('DEL', BASE .. 'totals:' .. namespace)
    call('SREM', BASE .. 'namespaces', namespace)
  end
  call('HINCRBY', META, 'removed:' .. kind, 1)
  publish(kind, namespace, row.id)
end

-- The entry unless it is over.
local function find(namespace, id)
  local row = load(namespace, id)
  if row and not ended(row) then
    return row
  end
  return nil
end

-- The entry; one that is over is removed first.
local function live(namespace, id)
  local row = load(namespace, id)
  local kind = row and ended(row)
  if kind then
    remove(row, kind)
    return nil
  end
  return row
end

local function count_use(row)
  row.last_use = call('HINCRBY', META, 'uses', 1)
  if not row.first_use then
    row.first_use = row.last_use
  end
end

-- A row as Redis answers it: numbers as text, since Redis would cut their fractions off.
local function told(row)
  local answer = {
    row.id, string.format('%.6f', row.created), string.format('%.6f', row.accessed),
    string.format('%.0f', row.reads), row.lease and string.format('%.6f', row.lease) or '',
    row.pinned and '1' or '', string.format('%.0f', row.skip_steps),
    string.format('%.0f', row.first_use), string.format('%.0f', row.last_use),
    string.format('%.0f', row.bytes),
  }
  for step, snapshot in pairs(row.steps) do
    answer[#answer + 1] = step
    answer[#answer + 1] = snapshot[1]
    answer[#answer + 1] = string.format('%.0f', snapshot[2])
    answer[#answer + 1] = snapshot[3]
  end
  return answer
end

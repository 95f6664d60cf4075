-- What keeps the catalog in order. Last part of every call; see redis_catalog.py.

-- Removes what ended and names garbage that was left lying; how many entries, whether more wait.
function operations.sweep()
  local leases, more_leases = remove_over('leases', NOW, MOST_ROWS)
  local expired, more_expired = 0, false
  if TTL > 0 then
    expired, more_expired = remove_over('created', NOW - TTL, MOST_ROWS)
  end
  local late = call('ZRANGEBYSCORE', BASE .. 'pending', '-inf', NOW, 'LIMIT', 0, MOST_ROWS)
  for _, name in ipairs(late) do
    call('ZREM', BASE .. 'pending', name)
    call('SADD', BASE .. 'trash', name)
  end
  garbage = call('SRANDMEMBER', BASE .. 'trash', MOST_ROWS)
  return { leases + expired, (more_leases or more_expired) and 1 or 0 }
end

-- The named garbage has been deleted.
function operations.forget(...)
  for _, name in ipairs({ ... }) do
    call('SREM', BASE .. 'trash', name)
  end
  return {}
end

-- Removes an entry whose value is lost or damaged, unless the step has another value by now.
function operations.lost(namespace, id, step, value)
  local row = load(namespace, id)
  local snapshot = row and row.steps[step]
  if not snapshot or snapshot[1] ~= value then
    return { 0 }
  end
  remove(row, 'corrupt')
  return { 1 }
end

-- Which of these values nothing refers to.
function operations.unknown(...)
  local strangers = {}
  for _, name in ipairs({ ... }) do
    local space = string.find(name, ' ', 1, true)
    local row = load(split(string.sub(name, 1, space - 1)))
    local used = call('ZSCORE', BASE .. 'pending', name)
      or call('SISMEMBER', BASE .. 'trash', name) == 1
    for _, snapshot in pairs(row and row.steps or {}) do
      used = used or snapshot[1] == string.sub(name, space + 1)
    end
    if not used then
      strangers[#strangers + 1] = name
    end
  end
  return strangers
end

-- Agrees on format and policy: the format, and whether entries stand in another policy's order.
function operations.setup(format, policy, half_life)
  call('HSETNX', META, 'format', format)
  local before = call('HMGET', META, 'format', 'policy', 'half_life')
  if before[1] ~= format then
    return { before[1], '' }
  end
  if before[2] and (before[2] ~= policy or before[3] ~= half_life) then
    call('HSET', META, 'reordering', 1)
  end
  call('HSET', META, 'policy', policy, 'half_life', half_life)
  return { format, call('HGET', META, 'reordering') or '' }
end

-- All entries stand in the order of the policy.
function operations.reordered()
  call('HDEL', META, 'reordering')
  return {}
end

-- Gives entries the place that the policy in force says.
function operations.reorder(...)
  for _, name in ipairs({ ... }) do
    local row = load(split(name))
    if row then
      enter_order(row)
    end
  end
  return {}
end

-- Whether all keys of the catalog say the same; a server that drops keys may have dropped one.
function operations.sound()
  local entries, order, leases = 0, 0, 0
  for _, namespace in ipairs(call('SMEMBERS', BASE .. 'namespaces')) do
    local rows = call('HLEN', BASE .. 'rows:' .. namespace)
    local leased = call('ZCARD', BASE .. 'leases:' .. namespace)
    local committed = call('HGET', BASE .. 'totals:' .. namespace, 'committed')
    if not committed or rows ~= tonumber(committed) + leased
      or rows ~= call('ZCARD', BASE .. 'ids:' .. namespace) then
      return { 0 }
    end
    entries, leases = entries + rows, leases + leased
    order = order + call('ZCARD', BASE .. 'order:' .. namespace)
  end
  local sound = entries == tonumber(call('HGET', META, 'entries') or 0)
    and order == call('ZCARD', BASE .. 'order')
    and order == call('ZCARD', BASE .. 'created')
    and leases == call('ZCARD', BASE .. 'leases')
  return { sound and 1 or 0 }
end

-- Makes all other keys anew from the rows of these namespaces, and a gap in the events.
function operations.rebuild(...)
  for _, namespace in ipairs(call('SMEMBERS', BASE .. 'namespaces')) do
    for _, name in ipairs({ 'ids:', 'order:', 'leases:', 'totals:' }) do
      call('DEL', BASE .. name .. namespace)
    end
  end
  local uses = tonumber(call('HGET', META, 'uses') or 0)
  local sequence = tonumber(call('HGET', META, 'sequence') or 0)
  call('HSET', META, 'entries', 0, 'bytes', 0, 'sequence', math.max(sequence, last_event()) + 1)
  call('DEL', BASE .. 'namespaces', BASE .. 'order', BASE .. 'leases', BASE .. 'created',
    BASE .. 'events')
  for _, namespace in ipairs({ ... }) do
    for _, id in ipairs(call('HKEYS', BASE .. 'rows:' .. namespace)) do
      local row, snapshots = load(namespace, id), 0
      for _ in pairs(row.steps) do
        snapshots = snapshots + 1
      end
      call('SADD', BASE .. 'namespaces', namespace)
      call('ZADD', BASE .. 'ids:' .. namespace, 0, id)
      add_totals(namespace, 1, row.bytes, snapshots, row.lease and 0 or 1)
      link(row)
      uses = math.max(uses, row.last_use)
    end
  end
  call('HSET', META, 'uses', uses)
  return {}
end

local arguments = {}
for i = 7, #ARGV do
  arguments[i - 6] = ARGV[i]
end
return { operations[ARGV[1]](unpack(arguments)), garbage }

-- Which entries go so that a write stays within two byte quotas, as eviction.py says it.

-- Entries that one write removes beyond those it needs.
local MOST_EXTRA = 256

local function split(name)
  local slash = string.find(name, '/', 1, true)
  return string.sub(name, 1, slash - 1), string.sub(name, slash + 1)
end

-- The entries to remove so that a scope needs no more than its low mark; and what it needs then.
local function choose(order, keep, needed, quota, low, victims, chosen)
  local extra, position = 0, 0
  local ghosts = {}
  while needed > quota * low and extra < MOST_EXTRA do
    local members = call('ZRANGE', BASE .. order, position, position + 63)
    if #members == 0 then
      break
    end
    position = position + #members
    for _, member in ipairs(members) do
      local name = string.sub(member, 18)
      if needed <= quota * low or extra >= MOST_EXTRA then
        break
      end
      if name ~= keep and not chosen[name] then
        local row = load(split(name))
        if row then
          chosen[name] = true
          victims[#victims + 1] = row
          if needed <= quota then
            extra = extra + 1
          end
          needed = needed - row.bytes
        else
          ghosts[#ghosts + 1] = member
        end
      end
    end
  end
  for _, member in ipairs(ghosts) do
    call('ZREM', BASE .. order, member)
  end
  return needed
end

-- As make_room in eviction.py: victims, or nil, the scope that is full and its bytes.
local function make_room(row, growth, namespace_quota, total_quota, high, low)
  local victims, chosen = {}, {}
  local scopes = {
    { 'order:' .. row.namespace, namespace_quota, 'totals:' .. row.namespace, row.namespace },
    { 'order', total_quota, 'meta', '' },
  }
  for _, scope in ipairs(scopes) do
    local order, quota, totals, name = scope[1], scope[2], scope[3], scope[4]
    if quota > 0 then
      local used = tonumber(call('HGET', BASE .. totals, 'bytes') or 0)
      local needed = used + growth
      for _, victim in ipairs(victims) do
        needed = needed - victim.bytes
      end
      if needed > quota * high then
        needed = choose(order, name_of(row), needed, quota, low, victims, chosen)
      end
      if needed > quota then
        return nil, name, used
      end
    end
  end
  return victims
end

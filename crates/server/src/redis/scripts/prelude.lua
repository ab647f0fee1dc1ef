-- Builds the environment of scripts. The server runs this file once for each virtual machine.
--
-- `native` has the functions that are written in Rust. Scripts see libraries only through empty
-- tables that are new for each run: so nothing that a script stores there stays for the next one.
local native = ...

local error, pcall, xpcall, type, next = error, pcall, xpcall, type, next
local rawget, rawset, rawequal, tostring = rawget, rawset, rawequal, tostring
local getmetatable, setmetatable, setfenv = getmetatable, setmetatable, setfenv
local create, resume = coroutine.create, coroutine.resume
local gc, floor = collectgarbage, math.floor
local READ_ONLY = 'Attempt to modify a readonly table'

-- The environment of the current run, the table behind each protected table, and the shown
-- metatables of strings and of protected tables.
local globals, behind, string_meta, locked

-- Errors of Rust functions are objects; scripts see texts and tables. A run that must stop cannot
-- catch that.
local function caught(ok, ...)
  if ok then return ok, ... end
  return false, native.caught((...))
end

-- As in Redis, the caught error of a command is its text.
local function text_of(ok, e, ...)
  if ok then return ok, e, ... end
  e = native.caught(e)
  if type(e) == 'table' and type(rawget(e, 'err')) == 'string' then e = rawget(e, 'err') end
  return false, e
end

local function safe_pcall(f, ...) return text_of(pcall(f, ...)) end

local function safe_xpcall(f, handler)
  -- An error inside of a handler calls the handler again, and again.
  return caught(xpcall(f, function(e)
    if native.is_stopped() then return e end
    return handler(native.shown(e))
  end))
end

local function safe_resume(co, ...) return caught(resume(co, ...)) end

local function or_error(ok, ...)
  if ok then return ... end
  error((...), 0)
end

local function wrap(f)
  local co = create(f)
  return function(...) return or_error(safe_resume(co, ...)) end
end

local function safe_setmetatable(t, meta)
  if behind[t] then error(READ_ONLY, 0) end
  return setmetatable(t, meta)
end

local function safe_getmetatable(value)
  if type(value) == 'string' then return string_meta end
  if behind[value] then return locked end
  return getmetatable(value)
end

local function safe_rawset(t, k, v)
  if behind[t] then error(READ_ONLY, 0) end
  return rawset(t, k, v)
end

local function safe_rawget(t, k)
  if t == globals then
    local own = rawget(behind[t], k)
    if own ~= nil then return own end
    return rawget(native.base, k)
  end
  return rawget(behind[t] or t, k)
end

local function safe_pairs(t)
  if not behind[t] then
    if type(t) ~= 'table' then native.bad(1, 'pairs', 'table', t) end
    return next, t, nil
  end
  local copy = {}
  if t == globals then for k, v in next, native.base do copy[k] = v end end
  for k, v in next, behind[t] do copy[k] = v end
  return next, copy, nil
end

local function compile(text, name)
  local f, why = native.compile(text, name)
  if not f then return nil, why end
  return setfenv(f, globals)
end

local function load(reader, name)
  local parts = {}
  while true do
    local part = reader()
    if part == nil or part == '' then break end
    if type(part) ~= 'string' then return nil, 'reader function must return a string' end
    parts[#parts + 1] = part
  end
  return compile(table.concat(parts), name or '=(load)')
end

-- The machine's own settings are not for scripts.
local function collect(what, n)
  if what == nil or what == 'collect' or what == 'step' or what == 'count' then
    native.tick()
    return gc(what or 'collect', n)
  end
  return 0
end

-- A sort in Lua: it can be stopped, and the one in C cannot.
local function sift(t, lt, from, to)
  local value = t[from]
  while true do
    local child = 2 * from
    if child > to then break end
    if child < to and lt(t[child], t[child + 1]) then child = child + 1 end
    if not lt(value, t[child]) then break end
    t[from] = t[child]
    from = child
  end
  t[from] = value
end

local function less(a, b) return a < b end

local function sort(t, lt)
  if type(t) ~= 'table' then native.bad(1, 'sort', 'table', t) end
  if behind[t] then error(READ_ONLY, 0) end
  if lt ~= nil and type(lt) ~= 'function' then native.bad(2, 'sort', 'function', lt) end
  lt = lt or less
  local n = #t
  for from = floor(n / 2), 1, -1 do sift(t, lt, from, n) end
  for to = n, 2, -1 do
    t[1], t[to] = t[to], t[1]
    sift(t, lt, 1, to - 1)
  end
end

local function foreach(t, f)
  for k, v in safe_pairs(t) do
    local r = f(k, v)
    if r ~= nil then return r end
  end
end

local function foreachi(t, f)
  for i = 1, #t do
    local r = f(i, t[i])
    if r ~= nil then return r end
  end
end

local function guarded(name)
  local f = table[name]
  return function(t, ...)
    if behind[t] then error(READ_ONLY, 0) end
    return f(t, ...)
  end
end

local tables = {
  concat = table.concat, foreach = foreach, foreachi = foreachi, getn = table.getn,
  insert = guarded('insert'), maxn = table.maxn, remove = guarded('remove'), setn = table.setn, sort = sort,
}
local coroutines = {
  create = create, resume = safe_resume, running = coroutine.running, status = coroutine.status,
  wrap = wrap, yield = coroutine.yield,
}
local maths = {}
for k, v in next, math do maths[k] = v end
maths.random, maths.randomseed = native.random, native.randomseed
local strings = {
  byte = string.byte, char = string.char, format = string.format, len = string.len, lower = string.lower,
  reverse = string.reverse, sub = string.sub, upper = string.upper,
}
for _, name in next, { 'find', 'match', 'gmatch', 'gsub', 'rep' } do strings[name] = native[name] end
strings.gfind = strings.gmatch
getmetatable('').__index = strings

local base = native.base
for name, f in next, {
  _VERSION = _VERSION, assert = assert, error = error, getmetatable = safe_getmetatable, ipairs = ipairs,
  next = next, pairs = safe_pairs, pcall = safe_pcall, rawequal = rawequal, rawget = safe_rawget,
  rawset = safe_rawset, select = select, setmetatable = safe_setmetatable, tonumber = tonumber,
  tostring = tostring, type = type, unpack = unpack, xpcall = safe_xpcall, load = load, loadstring = compile,
  collectgarbage = collect, gcinfo = gcinfo,
} do base[name] = f end
setmetatable(base, { __index = native.no_global })

local function no_write() native.read_only() end
local function meta_of(real) return { __index = real, __newindex = no_write, __metatable = false } end
local base_meta = { __index = base }
local libraries = {
  string = strings, table = tables, math = maths, coroutine = coroutines, os = { clock = native.clock },
}
for name, real in next, native.libraries do libraries[name] = real end
local metas = {}
for name, real in next, libraries do metas[name] = meta_of(real) end
local redis_meta = { __index = native.redis }

local function failed(e)
  if native.is_stopped() then return e end
  e = native.shown(e)
  local source, line = native.place()
  if type(e) == 'table' then return { rawget(e, 'err') or false, source, line } end
  return { 'ERR ' .. tostring(e), source, line }
end

-- Runs a script: returns true and its value, or false and the error, with its source and line.
return function(main, keys, argv, call, protected_call, may_call)
  local own = { KEYS = keys, ARGV = argv }
  globals, behind = {}, {}
  for name, real in next, libraries do
    local shown = setmetatable({}, metas[name])
    own[name], behind[shown] = shown, real
  end
  local commands = setmetatable({ call = call, pcall = protected_call, acl_check_cmd = may_call }, redis_meta)
  local redis = setmetatable({}, meta_of(commands))
  own.redis, own._G, behind[redis] = redis, globals, commands
  local string_index = { __index = own.string }
  string_meta = setmetatable({}, meta_of(string_index))
  behind[string_meta] = string_index
  locked = setmetatable({}, meta_of({}))
  behind[locked] = {}
  setmetatable(own, base_meta)
  behind[globals] = own
  setmetatable(globals, meta_of(own))
  setfenv(main, globals)
  local ok, value = xpcall(main, failed)
  if ok then return true, value end
  -- Without memory, Lua does not call the handler.
  if type(value) ~= 'table' then return false, 'ERR ' .. tostring(value) end
  return false, value[1], value[2], value[3]
end

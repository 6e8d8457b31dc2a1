-- Appends one body after another, each to the next stream in turn: wrk ... -- PREFIX STREAMS BODY_BYTES
-- Requests are built once; the load generator only hands them out.

require "summary"

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local threads = 0
local requests = {}
local current = 0

function setup(thread)
  thread:set("first", threads * 7919)  -- threads walk the same streams from different places
  threads = threads + 1
end

local function random_text(bytes)
  local characters = {}
  for i = 1, bytes do
    local at = math.random(#ALPHABET)
    characters[i] = ALPHABET:sub(at, at)
  end
  return table.concat(characters)
end

function init(args)
  local prefix, streams, bytes = args[1], tonumber(args[2]), tonumber(args[3])
  local headers = { ["Content-Type"] = "application/octet-stream" }
  for i = 1, streams do
    requests[i] = wrk.format("POST", prefix .. (i - 1), headers, random_text(bytes))
  end
  current = first % streams
end

function request()
  current = current % #requests + 1
  return requests[current]
end

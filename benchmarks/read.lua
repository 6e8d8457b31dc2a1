-- Gets one path after another from a file that lists them: wrk ... -- FILE

require "summary"

local requests = {}
local current = 0

function init(args)
  for path in io.lines(args[1]) do
    requests[#requests + 1] = wrk.format("GET", path)
  end
end

function request()
  current = current % #requests + 1
  return requests[current]
end

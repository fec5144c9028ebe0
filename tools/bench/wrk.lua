-- SPDX-License-Identifier: GPL-2.0
-- What bench asks of wrk: a request with given header fields, optionally for
-- one of OBJECTS names (at random, or each once and in order with WALK), and
-- exact totals as a line of JSON, which wrk's own report rounds.
-- Arguments: objects walk "Name: value" …
local objects, walk, nr = 0, false, 0

function init(args)
	objects = tonumber(args[1])
	walk = args[2] == "1"
	for i = 3, #args do
		local name, value = args[i]:match("^([^:]+): (.*)$")
		wrk.headers[name] = value
	end
	math.randomseed(os.time())
	if objects == 0 then
		local whole = wrk.format()
		wrk.request = function() return whole end
		return
	end
	local head, tail = wrk.format("GET", "/o/\1"):match("^(.-)\1(.*)$")
	request = function()
		if walk then
			nr = nr + 1
		else
			nr = math.random(objects)
		end
		return head .. ((nr - 1) % objects) .. tail
	end
end

function done(summary, latency)
	local e = summary.errors
	io.write(string.format('JSON {"requests": %d, "bytes": %.0f, "seconds": %.6f, ' ..
		'"errors": %d, "statuses": %d, "p50_us": %d, "p99_us": %d}\n',
		summary.requests, summary.bytes, summary.duration / 1e6,
		e.connect + e.read + e.write + e.timeout, e.status,
		latency:percentile(50), latency:percentile(99)))
end

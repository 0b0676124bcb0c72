# Tells the edge that the client has closed its connection, over a carrier that may lose or reorder datagrams. DNP has no
# acknowledgement of that, so it goes up to ten times, until the edge answers, a second at most. A game may free the
# client right after `close`, so the first three go together.
extends Reference

const AT_ONCE = 3
const SENDINGS = 10

# Milliseconds.
const PAUSE_LEAST = 20.0
const PAUSE_USUAL = 50.0 # where no round trip is known
const PAUSE_MOST = 100.0

var _carrier = null
var _pause = PAUSE_USUAL
var _sent = 0
var _due = 0
var _until = 0


func begin(carrier, round_trip, now):
	_carrier = carrier
	if round_trip > 0:
		_pause = clamp(round_trip / 2, PAUSE_LEAST, PAUSE_MOST)
	_until = now + SENDINGS * _pause
	for _n in range(AT_ONCE):
		_send(now)


# Goes on. False when the edge knows, or there is no hope of that.
func poll(now):
	_carrier.poll()
	var p = _carrier.receive()
	while p != null:
		if _answers(p):
			return end()
		p = _carrier.receive()
	if _carrier.status != "open" or now >= _until:
		return end()
	if _sent < SENDINGS and now >= _due:
		_send(now)
	return true


func end():
	_carrier.close()
	return false


func _send(now):
	_carrier.send(PoolByteArray([2, 0, 0])) # receivers ignore what follows the 2; an edge answers it
	_sent += 1
	_due = now + _pause


# A LinkUpdate without links, or a ConnectionClose.
static func _answers(p):
	return p.size() > 0 and p[0] == 2 or p.size() == 2 and p[0] == 9 and p[1] == 0

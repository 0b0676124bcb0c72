# Written by scripts/godot4 from the addon for Godot 3. Tested with a web build of Godot 4.6.
# The writes of a connection. An edge that grants them knows each LinkUpdate of this client by its number, which the relay
# applies once. So a repeat does no harm, and goes on until the edge acknowledges the number.
extends RefCounted

const Value = preload("value.gd")

const DATAGRAM = 1200
const COUNT_MAX = 127 # Java reads counts above wrongly (rule java-127), so no client sends more
const NUMBERED_MAX = 32 # values in a LinkUpdate with a number
const NUMBER_SIZE = 5 # bytes of a number at most

# Milliseconds.
const PAUSE_FIRST = 300.0 # before a repeat, while nothing was acknowledged
const PAUSE_LEAST = 60.0
const PAUSE_MOST = 2000.0
const INTERVAL = 30 # between two sendings of values that were set

# Which of two LinkUpdates of an edge is the newer one: the generation grows when another edge takes the session over, the
# counter with each LinkUpdate. An order is both of them as one int; a LinkUpdate without one counts as the oldest.
const GENERATIONS = 1 << 20
const COUNTERS = 1 << 44
const UNORDERED = -524288 * COUNTERS

const CODES = ["refused", "not_authorised", "bounds", "rate", "no_state", "busy"]

# What an entry of a state's _writes consists of.
const NUMBER = 0 # of the LinkUpdate that had the value first; 0: it waits
const STASH = 1 # what the edge sent meanwhile; null for nothing

# What is known of a LinkUpdate with a number.
const FIRST = 0 # when it was sent
const DUE = 1 # when it goes again
const PAUSE = 2
const REPEATED = 3
const STATES = 4 # of its values that were not overwritten, by LinkId and index

# "waiting": the edge has not said whether it knows numbers. "plain": it does not, so each write goes once. "numbered".
var mode = "waiting"
var ordered = false # the carrier loses nothing while it lasts
var out = [] # datagrams to send
var told = [] # [state, index, error] of writes that ended, and [state, index, null] of values that changed

var _waiting = {} # states by LinkId and index
var _sent = {} # by number
var _next = 1
var _trip = 0.0 # mean time to an acknowledgement in ms; 0 before the first
var _deviation = 0.0
var _backed_off = 0.0 # the pause of the latest number that was repeated, while no other was acknowledged
var _send_at = 0
var _now = 0
var _since = UNORDERED # the lowest order of the newest edge that was heard
var _body = PackedByteArray() # the LinkUpdate under way
var _body_number = 0
var _body_link = -1
var _body_count = 0 # where the number of values of its last link lies
var _body_values = 0


static func _key(state, i):
	return state.link << 16 | i


# Notes that the program set a value. An earlier write of the value ends as this one does.
func write(state, i):
	if state._writes.has(i):
		_leave(state, i)
	else:
		state._writes[i] = [0, null]
	if state.linked:
		_waiting[_key(state, i)] = state


# Notes that the program set a value to what it is.
func unchanged(state, i):
	if not state._writes.has(i):
		told.append([state, i, ""])


# Ends the writes of an own state that came before its link, unless they differ from what was offered.
func offered(state, values):
	for i in state._writes.keys():
		if values[i] == state.values[i]:
			_end(state, i, "")
		else:
			_waiting[_key(state, i)] = state


# Ends the writes of a link that ended.
func lose(state):
	for i in state._writes.keys():
		_end(state, i, "lost")


func _end(state, i, error):
	_leave(state, i)
	_waiting.erase(_key(state, i))
	state._writes.erase(i)
	told.append([state, i, error])


# Takes a write out of the datagram that had it.
func _leave(state, i):
	var w = state._writes[i]
	if w[NUMBER] > 0:
		var values = _sent[w[NUMBER]][STATES]
		values.erase(_key(state, i))
		if values.is_empty():
			_sent.erase(w[NUMBER])
	w[NUMBER] = 0


# Notes that the edge sent a value with this order.
func heard(order):
	var since = order & -COUNTERS # counter 0
	if since > _since:
		_since = since


# Handles an acknowledgement: of a number, with codes by LinkId and index. That of an edge from which another one took the session
# over does not count, because values of the new edge may be older than the write. The new edge acknowledges the next repeat.
func acknowledge(number, refused, order, now):
	if order < _since:
		return
	heard(order)
	if not _sent.has(number):
		return
	var sent = _sent[number]
	_time(sent, now)
	for key in sent[STATES].keys():
		var state = sent[STATES][key]
		var i = key & 0xffff
		var stash = state._writes[i][STASH]
		var refusal = refused.has(key)
		var error = ""
		if refusal:
			error = CODES[refused[key]] if refused[key] < CODES.size() else "refused"
		_end(state, i, error)
		var overtaken = state._orders[i] < order
		if overtaken: # what comes late from before does not have the write
			state._orders[i] = order
		if stash != null and (refusal or not overtaken) and state.values[i] != stash:
			state.values[i] = stash
			told.append([state, i, null])


# Learns from an acknowledgement, as RFC 6298 does. That of a number that was repeated may belong to any of its copies.
func _time(sent, now):
	_backed_off = sent[PAUSE] if sent[REPEATED] else 0.0
	if sent[REPEATED]:
		return
	var d = float(max(1.0, now - sent[FIRST]))
	if _trip == 0:
		_trip = d
		_deviation = d / 2
		return
	_deviation += (abs(d - _trip) - _deviation) / 4
	_trip += (d - _trip) / 8


func _pause():
	if ordered:
		return PAUSE_MOST
	var usual = PAUSE_FIRST if _trip == 0 else max(PAUSE_LEAST, ceil(1.5 * _trip + 4 * _deviation - 0.001))
	return min(PAUSE_MOST, max(usual, _backed_off))


# Has everything sent again over another carrier.
func resume(is_ordered):
	ordered = is_ordered
	for number in _sent:
		var sent = _sent[number]
		sent[DUE] = -1
		sent[PAUSE] = _pause()
		sent[REPEATED] = true


# Sends what waits, and repeats what is due, in as few datagrams as possible.
func flush(now):
	_now = now
	if mode != "waiting" and now >= _send_at and not _waiting.is_empty():
		_send_at = now + INTERVAL
		for key in _waiting.keys():
			_send(_waiting[key], key & 0xffff)
		_send_body()
		_waiting.clear()
	for number in _sent:
		if now >= _sent[number][DUE]:
			_repeat(number)


func _send(state, i):
	_add_value(state, i, 0)
	if _body_number == 0:
		_end(state, i, "") # nobody can know more
		return
	state._writes[i][NUMBER] = _body_number
	_sent[_body_number][STATES][_key(state, i)] = state


func _repeat(number):
	var sent = _sent[number]
	for key in sent[STATES]:
		_add_value(sent[STATES][key], key & 0xffff, number)
	_send_body()
	sent[REPEATED] = true
	if sent[DUE] >= 0: # else it goes over another carrier
		sent[PAUSE] = min(PAUSE_MOST, 2 * sent[PAUSE])
	sent[DUE] = _now + sent[PAUSE]


# Returns the number of a datagram: that of its first sending, or the next one; 0 for none.
func _begin(again):
	if mode == "plain" or again > 0:
		return again
	_sent[_next] = [_now, _now + _pause(), _pause(), false, {}]
	_next += 1
	return _next - 1


func _add_value(state, i, again):
	var v = StreamPeerBuffer.new()
	v.put_u16(i)
	Value.write_value(v, state.types[i], state.values[i])
	var value = v.data_array
	var fresh = state.link != _body_link
	if _body.size() > 0 and (not _fits(3 + value.size()) or _body[1] == COUNT_MAX or (not fresh and _body[_body_count] == COUNT_MAX)):
		_send_body()
		fresh = true
	if _body.size() == 0:
		_body = PackedByteArray([9, 0])
		_body_number = _begin(again)
	if fresh:
		_body[1] = _body[1] + 1
		_body_link = state.link
		_body_count = _body.size() + 2
		_body.append_array(PackedByteArray([state.link & 255, state.link >> 8, 0]))
	_body.append_array(value)
	_body[_body_count] = _body[_body_count] + 1
	_body_values += 1


# Whether the LinkUpdate under way has room for so many bytes.
func _fits(need):
	if _body_number > 0:
		return _body_values < NUMBERED_MAX and _body.size() + need + NUMBER_SIZE <= DATAGRAM
	return _body.size() + need <= DATAGRAM


func _send_body():
	if _body.size() > 0:
		var n = _body_number
		while n > 0:
			_body.append((n & 127) | (128 if n > 127 else 0))
			n >>= 7
		out.append(_body)
	_body = PackedByteArray()
	_body_link = -1
	_body_values = 0


# ---- what an edge says at the end of a LinkUpdate

# Returns the order and the acknowledgements, [number, codes by LinkId and index], at the end of a datagram whose links end
# at `links`; -1 if that is not known. Null if there is nothing of the kind.
static func parse_trailer(p, links):
	var end = p.size() - 1
	var at = end - p[end]
	if at != links if links >= 0 else at < 2:
		return null
	var generation = _uvarint(p, at, end)
	var counter = _uvarint(p, generation[1], end)
	if generation[0] < 0 or counter[0] < 0 or generation[0] >= GENERATIONS or counter[0] >= COUNTERS:
		return null
	at = counter[1]
	var acks = []
	while at < end:
		var number = _uvarint(p, at, end)
		at = number[1]
		if number[0] < 0 or at >= end or at + 1 + 5 * p[at] > end:
			return null
		var refused = {}
		for k in range(at + 1, at + 1 + 5 * p[at], 5):
			refused[(p[k] + 256 * p[k + 1]) << 16 | p[k + 2] + 256 * p[k + 3]] = p[k + 4]
		at += 1 + 5 * p[at]
		acks.append([number[0], refused])
	return [(generation[0] - 524288) * COUNTERS + counter[0], acks]


# Reads a LEB128, and returns it and where it ends; -1 if there is none.
static func _uvarint(p, at, end):
	var v = 0
	for shift in range(0, 49, 7):
		if at >= end:
			return [-1, end]
		v |= (p[at] & 127) << shift
		at += 1
		if p[at - 1] < 128:
			return [v, at]
	return [-1, end]

# Written by scripts/godot4 from the addon for Godot 3. Tested with a web build of Godot 4.6.
# The client's side of DNP without socket and clock. Its owner gives it each datagram (`receive`) and calls
# `advance` in every frame, with the time in ms; then it sends the datagrams in `out`, handles `events`, and
# empties both. The rules are those of dnp/PROTOCOL.md; the comments name them.
extends "value.gd"

const State = preload("state.gd")
const SendWindow = preload("window.gd")
const Codec = preload("value.gd")
const Commands = preload("commands.gd")
const Writes = preload("writes.gd")

const MODULUS = 65535
const AHEAD = 16 # commands that are held before their turn (rule hold-16)
const BEHIND = 4096 # commands behind the next one that are acknowledged again (rule ack-always)
const HELD_BYTES = 262144
const LONG_MAX = 1048576 # bytes of a long message
const LINKS_MAX = 32767
const VALUES_MAX = 8192
const OWN_MAX = 64
const OWN_IDS = 0x1000
const LANE_MAX = 64 # unreliable messages that wait for the next advance
const UNRELIABLE_MAX = 65499

# Milliseconds.
const REQUESTS = [0, 500, 1000, 1500, 2000, 3000, 4000]
const CONNECT_TIMEOUT = 5000
const SILENCE = 5000 # without any datagram, then the edge is asked
const UNSURE = 15000 # without an acknowledgement
const DEAF = 4000 # without the answer that the edge owes: another transport may do better
const SILENCE_HIDDEN = 1500 # the same two where the carrier does not tell when the edge closes it
const DEAF_HIDDEN = 2500
const TROUBLE = 2000 # while commands of the edge get lost, and so long after, probes show that the client is there
const TROUBLE_PROBES = 250
const STALL = 2000 # an owner that is so late stood still
const STEPS = [0, 60, 180, 500, 1500] # when LinkDown goes again: it has no acknowledgement
const UP_STEPS = [0, 250, 500, 1000, 2000] # rule up-repeat
const UPS_PER_FLUSH = 8
const INTERVAL = 30 # between some of these
const ANSWER = 3000 # an edge that has acknowledged the hello answers it sooner; another server does not

# What a client may send in a second; edges drop what is beyond 200 datagrams and 64 KiB.
const BYTES_PER_SECOND = 57344.0
const DATAGRAMS_PER_SECOND = 160.0

# The kinds of events, and what follows them in the array of an event.
# reason; bytes, reliable; state; state; state, index; ticket, error, body; state, index, error
enum { CONNECTED, CLOSED, MESSAGE, LINKED, UNLINKED, CHANGED, ANSWERED, WRITTEN }

# What an entry of _ups and of _downs consists of.
const STEP = 0
const FIRST = 1 # when it was sent; -1 before
const DUE = 2 # when it goes again; -1 after the last time

var out = [] # datagrams to send
var events = []
var phase = "connecting" # established, closed
var window = SendWindow.new()
var states = {} # linked states by LinkId, those of the client, too
var updates = 0 # values that came
var hidden_close = false # the carrier does not tell when the edge closes it
var malformed = 0 # datagrams that were dropped, or the rest of LinkUpdates

var _now = 0
var _asked = -1 # the first request
var _requests = 0
var _logging_in = false
var _hello = -1 # its number, until it is acknowledged
var _answer_by = -1 # when the hello counts as not answered; -1 for never
var _sure = 0
var _probed = -100000
var _troubled = -100000

var _expect = 0 # the number that comes next
var _taken = 0 # commands that came in their turn, up to BEHIND
var _held = {} # by number: [datagram, offer]
var _held_bytes = 0
var _parts = null # of a long message

var _writes = Writes.new()
var _trailers = true # LinkUpdates of the edge may have one
var _ups = {}
var _downs = {}
var _offered = {} # own states that are not up, by LinkId
var _offers = {} # the values that they were offered with
var _next_id = 0
var _flush_at = 0
var _lane = []
var _commands = Commands.new()
var _codec = Codec.new() # for states, which must not refer to the connection
var _bytes_left = BYTES_PER_SECOND
var _datagrams_left = DATAGRAMS_PER_SECOND
var _paid_at = 0


# Begins with a login, the first reliable message; empty for none. `plain`: the server is no edge of dnprelay, so no hello
# asks it for more than DNP. `ordered`: the carrier loses nothing while it lasts.
func begin(login, plain = false, ordered = false):
	_logging_in = login.size() > 0
	if _logging_in:
		window.add(4, login)
	_writes.ordered = ordered
	if plain:
		_plain()
	else:
		_hello = 1 if _logging_in else 0
		window.add(4, _commands.hello())


# Has writes go once, because the server knows no numbers. What is behind its values means nothing.
func _plain():
	_writes.mode = "plain"
	_trailers = false


# Notes what the edge says to the hello, or shows by what it sends.
func _granted(granted):
	_answer_by = -1
	_commands.said = true
	if granted & Commands.WRITES:
		_writes.mode = "numbered"
	else:
		_plain()


# Queues a reliable message of up to 1 MiB. False if it cannot be sent.
func send(bytes):
	return phase == "established" and window.send(_commands.outgoing(bytes))


# Queues a command about a state. Its answer has the same ticket. False if it cannot be sent.
func command(ticket, state, name, body):
	return phase == "established" and _commands.add(ticket, state, name, body)


# Queues a message that is sent once. False if it is dropped.
func send_unreliable(bytes):
	if phase != "established" or bytes.size() == 0 or bytes.size() > UNRELIABLE_MAX or _lane.size() >= LANE_MAX:
		return false
	_lane.append(PackedByteArray([3]) + bytes)
	return true


# Offers a state of this client.
func offer(state):
	while states.has(_next_id) or _offered.has(_next_id):
		_next_id += 1
	if _next_id >= OWN_IDS:
		return false
	state.link = _next_id
	_next_id += 1
	_offered[state.link] = state
	_offers[state.link] = state.values.duplicate()
	_bind(state)
	var p = StreamPeerBuffer.new()
	p.put_u16(state.link)
	p.put_u8(0)
	p.put_u16(state.message.size())
	p.put_data(state.message)
	p.put_u16(state.types.size())
	for i in range(state.types.size()):
		p.put_u8(state.types[i])
		write_value(p, state.types[i], state.values[i])
	window.add(5, p.data_array)
	return true


# Ends the link of an own state.
func withdraw(state):
	if _offered.has(state.link) and _offered[state.link] == state or states.has(state.link) and states[state.link] == state:
		_downs[state.link] = [0, -1, 0]
		_remove(state.link)


# Ends the connection, and tells the edge once; leave.gd does so more often.
func close():
	if phase != "closed":
		_emit(PackedByteArray([2]))
	end("local")


# Ends the connection without telling the edge.
func end(reason):
	if phase == "closed":
		return
	phase = "closed"
	for id in states.keys() + _offered.keys():
		_remove(id)
	_commands.end()
	_answered()
	_tell()
	events.append([CLOSED, reason])


func _begin(now):
	if now - _now > STALL:
		window.forgive(now)
		if _answer_by >= 0:
			_answer_by = now + ANSWER
	_now = now
	_tell()


# ---- sending

func _emit(p):
	_bytes_left -= p.size()
	_datagrams_left -= 1
	out.append(p)


func _allows():
	var s = (_now - _paid_at) / 1000.0
	_paid_at = _now
	_bytes_left = min(BYTES_PER_SECOND, _bytes_left + s * BYTES_PER_SECOND)
	_datagrams_left = min(DATAGRAMS_PER_SECOND, _datagrams_left + s * DATAGRAMS_PER_SECOND)
	return _bytes_left > 0 and _datagrams_left >= 1


# Sends what is ready, and does what is due. To be called in every frame.
func advance(now):
	_begin(now)
	if phase == "connecting":
		_request()
	if phase != "established":
		return
	var repeats = window.due(now)
	if repeats == null:
		_emit(PackedByteArray([2]))
		end("timeout")
		return
	for p in repeats:
		_emit(p)
	if window.idle() and _ask_due():
		_probed = now
		window.probe()
	if _answer_by >= 0 and now >= _answer_by: # the server has the hello: it is no edge
		_answer_by = -1
		_commands.said = false
		_writes.mode = "plain"
	_commands.advance(window)
	_answered()
	while window.ready() and _allows():
		_emit(window.next(now))
	if _allows():
		_writes.flush(now)
		for p in _writes.out:
			_emit(p)
		_writes.out = []
		_tell()
		if now >= _flush_at and not (_ups.is_empty() and _downs.is_empty()):
			_flush()
	for p in _lane:
		if _allows():
			_emit(p)
	_lane = []


func _request():
	if _asked < 0:
		_asked = _now
	var since = _now - _asked
	if since >= CONNECT_TIMEOUT:
		end("timeout")
	elif _requests < REQUESTS.size() and since >= REQUESTS[_requests]:
		while _requests < REQUESTS.size() and since >= REQUESTS[_requests]:
			_requests += 1
		_emit(PackedByteArray([0, 1, 0, 0, 0]))


# Whether to ask the edge if it is there.
func _ask_due():
	var next = max(_troubled, _probed + TROUBLE_PROBES)
	if next < _troubled + TROUBLE and _now >= next:
		return true
	return _now >= window.heard + (SILENCE_HIDDEN if hidden_close else SILENCE) or _now >= _sure + UNSURE


# Goes on after the transport was replaced by another one to the same session. What may have got lost goes
# again at once, and in any case a datagram, by which the edge learns that the client is there.
func resume(now, ordered = false):
	_writes.resume(ordered)
	for id in _downs:
		_downs[id] = [0, -1, 0]
	window.resume(now)
	_sure = now
	if window.idle():
		window.probe()
	_begin(now)


# Whether the edge owes an answer for so long that another transport may do better.
func unanswered(now):
	var since = window.waits_since()
	var patience = DEAF_HIDDEN if hidden_close else DEAF
	return phase == "established" and window.answered and since >= 0 and now >= max(window.heard, since) + patience


# ---- receiving

func receive(now, p):
	_begin(now)
	if p.size() == 0:
		return
	if phase == "connecting":
		_connecting(p)
		return
	if phase != "established":
		return
	window.heard = now
	match p[0]:
		9: _update(p)
		4, 5, 10: _reliable(p)
		6: _acknowledged(p)
		3:
			if p.size() > 1:
				events.append([MESSAGE, cut(p, 1, p.size()), false])
		7, 8:
			if p.size() >= 3:
				if p[0] == 7:
					_link_up(p[1] + 256 * p[2])
				else:
					_link_down(p[1] + 256 * p[2])
		2: end("refused" if _logging_in and not window.answered else "peer")


static func cut(p, from, to):
	if from >= to:
		return PackedByteArray()
	return p.slice(from, to)


# A client that connects ignores everything but the answer.
func _connecting(p):
	if p[0] != 1 or p.size() < 2 or (p[1] == 0 and p.size() < 4):
		return
	if p[1] == 0 and p[2] == 0 and p[3] == 0:
		phase = "established"
		window.heard = _now
		_sure = _now
		if _requests == 1:
			window.sample(_now - _asked)
		events.append([CONNECTED])
	elif p[1] <= 2:
		end("rejected" if p[1] == 1 else "protocol")


func _acknowledged(p):
	if p.size() < 4:
		malformed += 1
	elif p[3] != 0:
		window.again(p[1] + 256 * p[2])
	elif window.acknowledge(p[1] + 256 * p[2], _now):
		_sure = _now
		if p[1] + 256 * p[2] == _hello:
			_hello = -1 # the number comes again
			if _writes.mode == "waiting":
				_answer_by = _now + ANSWER


# A command that does not parse is not acknowledged: the next copy may be better.
func _reliable(p):
	var offer = null
	if p.size() < 4:
		malformed += 1
		return
	if p[0] == 5:
		offer = _parse_offer(p)
		if offer == null:
			malformed += 1
			return
	var n = p[1] + 256 * p[2]
	if n >= MODULUS:
		return
	var ahead = (n - _expect + MODULUS) % MODULUS
	var again = ahead >= MODULUS - _taken or _held.has(n)
	if not again and (ahead >= AHEAD or (ahead > 0 and _held_bytes + p.size() > HELD_BYTES)):
		return
	out.append(PackedByteArray([6, n & 255, n >> 8, 0])) # answers cost nothing at the edge
	if again or ahead > 0:
		_troubled = _now
	if again:
		return
	_held[n] = [p, offer]
	_held_bytes += p.size()
	while phase == "established" and _held.has(_expect):
		var h = _held[_expect]
		_held.erase(_expect)
		_held_bytes -= h[0].size()
		_expect = (_expect + 1) % MODULUS
		_taken = int(min(_taken + 1, BEHIND))
		match h[0][0]:
			4: _message(cut(h[0], 3, h[0].size()))
			5: _offer(h[1])
			10: _part(h[0])


func _message(bytes):
	var before = _commands.granted
	var message = _commands.incoming(bytes)
	_answered()
	if before < 0 and _commands.granted >= 0:
		_granted(_commands.granted)
	if message != null:
		events.append([MESSAGE, message, true])


func _answered():
	for a in _commands.answers:
		events.append([ANSWERED] + a)
	_commands.answers = []


# Puts parts together. One that belongs to no message is a probe.
func _part(p):
	var flags = p[3]
	if flags & 1:
		_parts = PackedByteArray()
	if _parts == null:
		return
	_parts.append_array(cut(p, 4, p.size()))
	if _parts.size() > LONG_MAX:
		_emit(PackedByteArray([2]))
		end("too-large")
	elif flags & 2:
		if _parts.size() > 0:
			_message(_parts)
		_parts = null


# ---- links

# Returns LinkId, read-only, message, types, values of a LinkState; null if it is not complete.
func _parse_offer(p):
	var end = p.size()
	if end < 10:
		return null
	_in.data_array = p
	_in.seek(3)
	var id = _in.get_u16()
	var flags = _in.get_u8()
	var length = _in.get_u16()
	if 8 + length + 2 > end:
		return null
	var message = cut(p, 8, 8 + length)
	var at = 8 + length
	_in.seek(at)
	var count = _in.get_u16()
	at += 2
	var types = []
	var values = []
	for _i in range(count):
		if at + 1 > end or p[at] >= TYPES:
			return null
		var type = p[at]
		at += 1
		var size = size_at(type, at, end)
		if size < 0:
			return null
		_in.seek(at)
		types.append(type)
		values.append(read_value(type))
		at += size
	return [id, flags == 1, message, types, values]


# Answers an offer, which was acknowledged. One without values is a question of the edge, which any answer answers.
func _offer(o):
	var id = o[0]
	if states.has(id) or _offered.has(id):
		if states.has(id) and not states[id].own: # a repeat; under an own id any answer would hit the own state
			out.append(PackedByteArray([7, id & 255, id >> 8]))
		return
	if o[3].is_empty() or o[3].size() > VALUES_MAX or states.size() >= LINKS_MAX:
		out.append(PackedByteArray([8, id & 255, id >> 8]))
		return
	var state = State.new()
	state.link = id
	state.writable = not o[1]
	state.message = o[2]
	state.types = o[3]
	state.values = o[4]
	describe(state)
	_bind(state)
	_up(state)
	out.append(PackedByteArray([7, id & 255, id >> 8]))
	_ups[id] = [1, _now, _now + UP_STEPS[1]]
	events.append([LINKED, state])


func _bind(state):
	state._codec = _codec
	state._pending = _writes
	state._orders = []
	for _i in range(state.types.size()):
		state._orders.append(Writes.UNORDERED)


func _up(state):
	state.linked = true
	states[state.link] = state


# Reads the link message of a state: plain text is its key; JSON with "v":1 has the key, names of the values, and fields of
# data.
static func describe(state):
	var text = state.message.get_string_from_utf8()
	state.key = text
	if not text.begins_with("{"):
		return
	var parsed = JSON.new()
	var d = parsed.data if parsed.parse(text) == OK else null
	if typeof(d) != TYPE_DICTIONARY or d.get("v") != 1 or typeof(d.get("key")) != TYPE_STRING:
		return
	state.key = d["key"]
	if typeof(d.get("names")) == TYPE_ARRAY:
		for name in d["names"]:
			state.names.append(str(name))
	if typeof(d.get("fields")) == TYPE_DICTIONARY:
		for index in d["fields"]:
			var i = int(index) if index.is_valid_int() else -1
			var list = Codec.fields_of(d["fields"][index])
			if list != null and i >= 0 and i < state.types.size() and state.types[i] == Codec.DATA:
				state.components[i] = list


func _link_up(id):
	if not _offered.has(id):
		if id < _next_id and not states.has(id) and not _downs.has(id): # all its LinkDowns were lost
			_downs[id] = [0, -1, 0]
		return
	var state = _offered[id]
	_offered.erase(id)
	_up(state)
	_writes.offered(state, _offers[id])
	_offers.erase(id)
	_tell()
	events.append([LINKED, state])


func _link_down(id):
	if states.has(id) or _offered.has(id):
		_remove(id)


func _remove(id):
	var state = states[id] if states.has(id) else _offered[id]
	states.erase(id)
	_offered.erase(id)
	_offers.erase(id)
	_ups.erase(id)
	state.linked = false
	state._pending = null
	_writes.lose(state)
	_tell()
	events.append([UNLINKED, state])


# Passes on what the writes tell.
func _tell():
	for t in _writes.told:
		events.append([CHANGED, t[0], t[1]] if t[2] == null else [WRITTEN, t[0], t[1], t[2]])
	_writes.told = []


# Applies a LinkUpdate up to the first thing that is wrong (rule parse-prefix). Acknowledgements count before its values.
# Where a link cannot be read, so that nobody knows where the links end, a trailer counts only if the edge is known to
# send them: libraries announce more links than follow.
func _update(p):
	var places = [] # state, index and place of each value
	var links = _walk(p, places)
	var order = Writes.UNORDERED
	if links < 0:
		malformed += 1
	if _trailers and p.size() > 2 and links != p.size() and (links >= 0 or _writes.mode == "numbered"):
		var trailer = Writes.parse_trailer(p, links)
		if trailer != null:
			order = trailer[0]
			if _writes.mode != "numbered":
				_granted(Commands.WRITES) # the answer to the hello may wait behind many offers
			for ack in trailer[1]:
				_writes.acknowledge(ack[0], ack[1], order, _now)
			_tell()
	for k in range(0, places.size(), 3):
		var state = places[k]
		var i = places[k + 1]
		updates += 1
		if order < state._orders[i]:
			continue
		state._orders[i] = order
		_writes.heard(order)
		_in.seek(places[k + 2])
		var value = read_value(state.types[i])
		if not state._writes.is_empty() and state._writes.has(i):
			state._writes[i][Writes.STASH] = value
		elif state.values[i] != value:
			state.values[i] = value
			events.append([CHANGED, state, i])


# Finds the values of a LinkUpdate, and returns where its links end; -1 if one of them cannot be read.
func _walk(p, places):
	var end = p.size()
	if end < 2:
		return -1
	_in.data_array = p # for size_at
	var at = 2
	for _l in range(p[1]):
		if at + 3 > end:
			return -1
		var id = p[at] + 256 * p[at + 1]
		var count = p[at + 2]
		at += 3
		if not states.has(id):
			return -1
		if not _ups.is_empty():
			_ups.erase(id)
		var state = states[id]
		var types = state.types
		for _v in range(count):
			if at + 2 > end:
				return -1
			var i = p[at] + 256 * p[at + 1]
			at += 2
			if i >= types.size():
				return -1
			var size = SIZES[types[i]]
			if size == 0:
				size = size_at(types[i], at, end)
			if size < 0 or at + size > end:
				return -1
			places.append(state)
			places.append(i)
			places.append(at)
			at += size
	return at


# Whether something was sent for the last time, and the edge was heard afterwards.
func _arrived(w):
	return w[DUE] < 0 and window.heard > w[FIRST] + STEPS[STEPS.size() - 1]


# Whether to send something now. It notes when that is due again.
func _step(w, steps):
	if w[DUE] < 0 or _now < w[DUE]:
		return false
	if w[FIRST] < 0:
		w[FIRST] = _now
	w[STEP] += 1
	w[DUE] = w[FIRST] + steps[w[STEP]] if w[STEP] < steps.size() else -1
	return true


# Repeats LinkDowns and LinkUps that are due.
func _flush():
	_flush_at = _now + INTERVAL
	for id in _downs.keys():
		if _step(_downs[id], STEPS):
			_emit(PackedByteArray([8, id & 255, id >> 8]))
		elif _arrived(_downs[id]):
			_downs.erase(id)
	var sent = 0
	for id in _ups.keys():
		if sent == UPS_PER_FLUSH:
			break
		if _step(_ups[id], UP_STEPS):
			_emit(PackedByteArray([7, id & 255, id >> 8]))
			sent += 1
		if _ups[id][DUE] < 0:
			_ups.erase(id)

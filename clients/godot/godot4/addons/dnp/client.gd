# Written by scripts/godot4 from the addon for Godot 3. Tested with a web build of Godot 4.6.
# A client of dnprelay: it connects to an edge, drives the protocol, and connects again. It is no node; call
# `poll` in every frame. The node DnpSync does, and moves other nodes.
#
#	var dnp = preload("res://addons/dnp/client.gd").new()
#	dnp.connect("linked", Callable(self, "_on_linked"))
#	dnp.open("udp://127.0.0.1:3413")
extends RefCounted

class_name DnpClient

signal opened() # the edge accepted the connection
signal closed(reason, detail, retry_in) # retry_in ms, the client connects again; -1: it does not
signal linked(state) # the edge offers a state, or took one of this client
signal unlinked(state)
signal changed(state, index)
signal message(bytes, reliable)
signal written(state, index, error) # error is "" if the state has the value that the game wrote
signal answered(ticket, error, body) # error is "" if the game server did what a command asked for

const Connection = preload("connection.gd")
const State = preload("state.gd")
const Value = preload("value.gd")
const Udp = preload("udp.gd")
const WebSocket = preload("websocket.gd")
const Leave = preload("leave.gd")

# Milliseconds.
const DIAL_TIMEOUT = 4000
const STEADY = 10000 # a carrier that lasted so long was a good one: the pauses begin anew
const LATE = 10000 # for so long an edge may hear of a carrier that this client gave up
const RETRY_LEAST = 250
const RETRY_MOST = 15000
const RETRY_ASKED_MOST = 60000
const QUICK = 50

# What an edge says when it closes a carrier.
const OVER = 1000
const FULL = 1013
const UNKNOWN = 4000
const REPLACED = 4001

var states = {} # the linked states by key
var url = {}
var unacknowledged = 0 # reliable messages, commands among them, that the edge had not acknowledged when the connection ended

var _options = {}
var _connection = null
var _carrier = null
var _leave = null # what tells the edge of the latest `close`
var _resume = ""
var _attempts = 0
var _dialed = 0
var _attached = -1
var _retry_at = -1
var _abandoned = -100000
var _ending = ["", 0] # how the carrier ended: reason, code
var _own = []
var _ticket = 0 # of the latest command
var _codec = Value.new()
var _rng = RandomNumberGenerator.new()


# Connects to "udp://host:3413", "ws://host:3480" or "wss://host". Options:
#
#	token         String, or PackedByteArray for the whole login message, or a Callable that returns one of them: it is
#	              asked for each new session, because edges take a token once
#	plain         true: the server is no edge of dnprelay but another one of DNP, which takes no hello. Values are written
#	              once, as other clients of DNP do
#	reconnect     false: do not connect again after the connection ended
#	certificate   X509Certificate to trust besides those of the system (wss)
#	insecure      true: do not check the certificate of the edge (wss)
func open(address, options = {}):
	close()
	_options = options
	_rng.randomize()
	url = parse_url(address)
	_attempts = 0
	_dial(Time.get_ticks_msec())


# Whether messages can be sent.
func is_open():
	return _connection != null and _connection.phase == "established"


# The mean time from a reliable message to its acknowledgement in ms; 0 if it is not known.
func round_trip():
	return _connection.window.trip if _connection != null else 0.0


# Sends a reliable message, text or bytes. False if there is no connection, or too much waits.
func send(data):
	return is_open() and _connection.send(_bytes(data))


# Sends a message once. False if it is dropped.
func send_unreliable(data):
	return is_open() and _carrier != null and _connection.send_unreliable(_bytes(data))


# Asks the game server to do something with a state that this client may write, or with its own. Returns a number, with
# which the signal `answered` comes once, and not before this returns; -1 if it cannot be sent.
func command(state, name, body = ""):
	if not is_open() or not state.linked or not _connection.command(_ticket + 1, state, name, _bytes(body)):
		return -1
	_ticket += 1
	return _ticket


# Makes a state of this client, which it offers now and after each reconnection. Each value is
# [type, value] or [type, value, name], as in ["vector3f32", Vector3(), "pos"]. Null if a type or value is none.
func offer(key, values):
	var state = State.new()
	state.message = _bytes(key)
	state.own = true
	state.writable = true
	state._codec = _codec
	for v in values:
		var type = Value.type_named(v[0])
		var settled = _codec.settle(type, v[1]) if type >= 0 else null
		if settled == null:
			return null
		state.types.append(type)
		state.values.append(settled)
		state.names.append(v[2] if v.size() > 2 else str(state.names.size()))
	if state.types.is_empty() or state.message.size() == 0 or _own.size() >= Connection.OWN_MAX:
		return null
	var names = state.names
	state.names = []
	Connection.describe(state)
	state.names = names
	_own.append(state)
	if is_open():
		_connection.offer(state)
	return state


# Ends a state of this client.
func withdraw(state):
	_own.erase(state)
	if _connection != null:
		_connection.withdraw(state)
	_handle()


# Ends the connection for good, and tells the edge. By UDP that may get lost, so `poll` tells it again until the edge knows,
# a second at most.
func close():
	_retry_at = -1
	_options = {"reconnect": false}
	var carrier = _carrier
	if is_open() and carrier != null and not carrier.ordered:
		if _leave != null:
			_leave.end()
		_leave = Leave.new()
		_leave.begin(carrier, round_trip(), Time.get_ticks_msec())
		_carrier = null
		_connection.end("local")
		_handle()
		return
	if _connection != null:
		_connection.close()
		_handle()
	if carrier != null and carrier == _carrier: # no handler has opened another one
		_carrier = null
		carrier.close()


# Whether `poll` still has to tell the edge of the latest `close`.
func is_leaving():
	return _leave != null


# Receives, sends, and emits signals. To be called in every frame.
func poll():
	var now = Time.get_ticks_msec()
	if _leave != null and not _leave.poll(now):
		_leave = null
	if _carrier == null and _retry_at >= 0 and now >= _retry_at:
		_dial(now)
	if _carrier != null:
		_poll_carrier(now)
	if _connection == null:
		return
	_connection.advance(now)
	if _resume != "" and _carrier != null and _attached >= 0 and _connection.unanswered(now):
		_carrier.close()
		_abandoned = now
		_carrier_lost(0, "no answer")
	_handle()


func _poll_carrier(now):
	var c = _carrier
	c.poll()
	if c.status == "opening" and now - _dialed >= DIAL_TIMEOUT:
		c.close()
		c.reason = "no answer in time"
	if c.status == "open" and _attached < 0:
		_attach(now)
	while _carrier == c and _attached >= 0:
		var p = c.receive()
		if p == null:
			break
		_connection.receive(now, p)
		_handle()
	if _carrier == c and c.status == "closed":
		if _attached < 0 and _resume != "":
			_abandoned = now
		_carrier_lost(c.code, c.reason)


func _dial(now):
	_retry_at = -1
	_dialed = now
	_attached = -1
	_carrier = Udp.new() if url.scheme == "udp" else WebSocket.new()
	_carrier.open(url, _resume, _options)


# A carrier is there: it continues the session, or begins a new one.
func _attach(now):
	_attached = now
	if _carrier.resumed and is_open():
		_resume = _carrier.token
		_connection.hidden_close = _carrier.hidden_close
		_connection.resume(now, _carrier.ordered)
		return
	if _connection != null: # it waited for a carrier to its session
		var carrier = _carrier
		_carrier = null
		_connection.end("lost")
		unacknowledged = _connection.window.unacknowledged()
		var events = _connection.events
		_connection.events = []
		_forget_states()
		for e in events:
			if e[0] == Connection.ANSWERED:
				emit_signal("answered", e[1], e[2], e[3])
			elif e[0] == Connection.WRITTEN:
				emit_signal("written", e[1], e[2], e[3])
		emit_signal("closed", "lost", "the edge does not have the session", 0)
		_carrier = carrier
	_retry_at = -1
	_resume = _carrier.token
	_connection = Connection.new()
	_connection.hidden_close = _carrier.hidden_close
	_connection.begin(_login(), _options.get("plain", false), _carrier.ordered)


func _login():
	var token = _options.get("token", "")
	if token is Callable:
		token = token.call()
	if typeof(token) != TYPE_STRING:
		return token
	if token == "":
		return PackedByteArray()
	var bytes = token.to_utf8_buffer()
	return PackedByteArray([0x44, 0x4e, 0x50, 0x41, 1, bytes.size() & 255, bytes.size() >> 8]) + bytes


# Sends what the connection wants to send, and tells what it tells.
func _handle():
	if _connection == null:
		return
	var c = _connection
	if _carrier != null:
		for p in c.out:
			_carrier.send(p)
	c.out = []
	while not c.events.is_empty(): # a handler of a signal may cause more
		var events = c.events
		c.events = []
		for e in events:
			if c != _connection: # a handler has closed it
				return
			_event(c, e)
	if _carrier != null and not c.out.is_empty() and c == _connection:
		for p in c.out:
			_carrier.send(p)
		c.out = []


func _event(c, e):
	match e[0]:
		Connection.CHANGED:
			emit_signal("changed", e[1], e[2])
		Connection.MESSAGE:
			emit_signal("message", e[1], e[2])
		Connection.ANSWERED:
			emit_signal("answered", e[1], e[2], e[3])
		Connection.WRITTEN:
			emit_signal("written", e[1], e[2], e[3])
		Connection.LINKED:
			states[e[1].key] = e[1]
			emit_signal("linked", e[1])
		Connection.UNLINKED:
			if states.get(e[1].key) == e[1]:
				states.erase(e[1].key)
			emit_signal("unlinked", e[1])
		Connection.CONNECTED:
			for state in _own:
				c.offer(state)
			emit_signal("opened")
		Connection.CLOSED:
			_ended(c, e[1])


func _forget_states():
	for key in states.keys():
		var state = states[key]
		states.erase(key)
		emit_signal("unlinked", state)


# The carrier ended. Where an edge can continue the session, the connection waits for another one.
func _carrier_lost(code, reason):
	_carrier = null
	_settle()
	_ending = [reason, code]
	var now = Time.get_ticks_msec()
	if _connection == null or _connection.phase == "closed":
		_again("rejected" if code == FULL else "lost", reason)
		return
	var ours = code == REPLACED and now < _abandoned + LATE # the newer carrier is one that this client gave up
	if _resume != "" and is_open() and code != OVER and code != UNKNOWN and (code != REPLACED or ours):
		_retry_at = now + _pause(reason)
		_attempts += 1
		return
	match code:
		OVER: _connection.end("peer")
		REPLACED: _connection.end("replaced")
		FULL: _connection.end("rejected")
		_: _connection.end("lost")
	_handle()


func _settle():
	if _attached >= 0 and Time.get_ticks_msec() - _attached >= STEADY:
		_attempts = 0
	_attached = -1


# The connection ended, and with it the session.
func _ended(c, reason):
	if c != _connection:
		return
	_connection = null
	_resume = ""
	unacknowledged = c.window.unacknowledged()
	if _carrier != null:
		for p in c.out: # its last word
			_carrier.send(p)
		_carrier.close()
		_carrier = null
		_settle()
	_again(reason, _ending[0])
	_ending = ["", 0]


func _again(reason, detail):
	var pause = -1
	if _options.get("reconnect", true) and not reason in ["local", "protocol", "replaced"]:
		pause = _pause(detail)
		_attempts += 1
		_retry_at = Time.get_ticks_msec() + pause
	emit_signal("closed", reason, detail, pause)


# The pause in ms before the next attempt: what the edge asks for, or twice as long each time, half of it random,
# so that the clients of an edge that ended do not come all at once.
func _pause(reason):
	var asked = 0
	var at = reason.find("retry-after=")
	if at >= 0:
		asked = int(min(RETRY_ASKED_MOST, int(reason.substr(at + 12, 9)))) * (1 + _rng.randf() / 2)
	if _attempts == 0:
		return int(asked if at >= 0 else QUICK * _rng.randf())
	return int(max(asked, min(RETRY_MOST, RETRY_LEAST * pow(2, min(_attempts - 1, 10))) * (0.5 + _rng.randf() / 2)))


# Returns {scheme, host, port, text} of an address.
static func parse_url(address):
	var scheme = "udp"
	var rest = address
	var at = address.find("://")
	if at >= 0:
		scheme = address.substr(0, at)
		rest = address.substr(at + 3)
	scheme = {"http": "ws", "https": "wss"}.get(scheme, scheme)
	var path = "/dnp"
	var slash = rest.find("/")
	if slash >= 0:
		if slash < rest.length() - 1:
			path = rest.substr(slash)
		rest = rest.substr(0, slash)
	var host = rest
	var port = {"ws": 80, "wss": 443}.get(scheme, 3413)
	var colon = rest.rfind(":")
	if colon > rest.rfind("]"):
		host = rest.substr(0, colon)
		port = int(rest.substr(colon + 1))
	var bare = host.trim_prefix("[").trim_suffix("]")
	return {"scheme": scheme, "host": bare, "port": port, "text": "%s://%s:%d%s" % [scheme, host, port, path]}


static func _bytes(data):
	return data.to_utf8_buffer() if typeof(data) == TYPE_STRING else data

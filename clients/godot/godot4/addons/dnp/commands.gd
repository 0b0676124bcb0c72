# Written by scripts/godot4 from the addon for Godot 3. Tested with a web build of Godot 4.6.
# Commands: this client asks the game server to do something with a state, and gets one answer. They travel in reliable
# messages, as envelopes that begin with 0xC5, once the edge has answered the hello (INTERFACES.md, "Commands").
extends RefCounted

const MARK = 0xc5
const REQUEST = 1
const RAW = 2
const ANSWER = 0x81
const BY_LINK = 1
const HELLO = "dnp.command.v1"

# What an edge may grant.
const COMMANDS = 1
const WRITES = 2

const OUTSTANDING = 16 # commands without an answer
const AHEAD = 64 # how far their ids may be apart
const WAITING = 256 # commands that are not sent
const NAME_MAX = 64 # bytes
const BODY_MAX = 60000

const CODES = [
	"", "bad_request", "unknown_state", "not_authorised", "busy", "no_responders", "timeout", "too_large", "unavailable", "unknown_command", "failed",
]

var answers = [] # [ticket, error, body], for the owner to take

var said = false # the server is an edge that has answered the hello, or will
var granted = -1 # what the edge grants; -1 before its answer

var _asked = false # an answer may come
var _last = 0 # the id of the latest request; 0 is that of the hello
var _open = {} # tickets by id
var _waiting = [] # [ticket, state, name, body]


# Queues a command. False if it cannot be sent, or if too much waits. The ticket is the caller's number for it.
func add(ticket, state, name, body):
	var size = name.to_utf8_buffer().size()
	if size == 0 or size > NAME_MAX or body.size() > BODY_MAX or _waiting.size() >= WAITING:
		return false
	_waiting.append([ticket, state, name.to_utf8_buffer(), body.duplicate()])
	return true


# Returns the hello that asks for commands and for writes with numbers. It goes before everything but the login.
func hello():
	said = true
	_asked = true
	return _opening() + PackedByteArray([COMMANDS | WRITES, 0, 0, 0])


static func _opening():
	return PackedByteArray([MARK, 0]) + HELLO.to_utf8_buffer()


# Gives what waits to the window of reliable commands. To be called often.
func advance(window):
	if _waiting.is_empty():
		return
	if not said:
		said = window.send(_opening())
		_asked = _asked or said
	while granted > 0 and granted & COMMANDS and not _waiting.is_empty() and _room():
		var w = _waiting[0]
		if w[1].linked:
			if not window.send(_request(w)):
				return
			_last = _next()
			_open[_last] = w[0]
		else:
			answers.append([w[0], "unknown_state", PackedByteArray()])
		_waiting.pop_front()


func _request(w):
	var id = _next()
	var link = w[1].link
	return PackedByteArray([MARK, REQUEST, id & 255, id >> 8, BY_LINK, link & 255, link >> 8, w[2].size()]) + w[2] + w[3]


func _next():
	return 1 if _last == 0xffff else _last + 1


func _room():
	for id in _open:
		if ((_next() - id) & 0xffff) >= AHEAD:
			return false
	return _open.size() < OUTSTANDING


# Returns how a reliable message of the game is sent.
func outgoing(bytes):
	if said and bytes.size() > 0 and bytes[0] == MARK:
		return PackedByteArray([MARK, RAW]) + bytes
	return bytes


# Returns the game's message in a reliable message of the edge; null if there is none.
func incoming(bytes):
	if not _asked or bytes.size() == 0 or bytes[0] != MARK:
		return bytes
	var is_answer = bytes.size() >= 5 and bytes[1] == ANSWER
	var id = bytes[2] + 256 * bytes[3] if is_answer else -1
	if id == 0:
		granted = bytes[5] if bytes.size() >= 9 else COMMANDS
		return null
	if granted < 0:
		return bytes
	if not is_answer:
		return _cut(bytes, 2) if bytes.size() >= 2 and bytes[1] == RAW else null
	if _open.has(id):
		var code = bytes[4]
		answers.append([_open[id], CODES[code] if code < CODES.size() else "failed", _cut(bytes, 5)])
		_open.erase(id)
	return null


static func _cut(bytes, from):
	if from >= bytes.size():
		return PackedByteArray()
	return bytes.slice(from)


# Answers what has no answer when the connection ends. It may have been executed.
func end():
	for id in _open:
		answers.append([_open[id], "ended", PackedByteArray()])
	for w in _waiting:
		answers.append([w[0], "ended", PackedByteArray()])
	_open.clear()
	_waiting.clear()

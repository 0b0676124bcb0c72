# The part of a NATS client that a publisher of states needs, for Godot 3: messages
# whose bodies are Variants, one request at a time, and subscriptions. The protocol has
# lines of text, some with a body: https://docs.nats.io/reference/reference-protocols/nats-protocol
extends Reference

const HEADER = "NATS/1.0\r\nContent-Type: application/x-godot-variant; version=3\r\n\r\n"
const ANSWERS = "0" # the subscription to answers
const LINE_MAX = 4096 # the first line of the server is the longest

var error = "" # why the connection does not work; empty = it works

var _tcp = StreamPeerTCP.new()
var _in = PoolByteArray() # received and not yet handled
var _handlers = {} # by subscription number: [object, method]
var _answer = null
var _inbox = "_INBOX.godot%d.%d" % [OS.get_process_id(), OS.get_ticks_usec()]


func open(host, port):
	_tcp.connect_to_host(host, port)
	while _tcp.get_status() == StreamPeerTCP.STATUS_CONNECTING:
		OS.delay_msec(5)
	if _tcp.get_status() != StreamPeerTCP.STATUS_CONNECTED:
		error = "no NATS server at %s:%d" % [host, port]
		return
	_tcp.set_no_delay(true)
	_put('CONNECT {"verbose":false,"headers":true,"no_responders":true,"lang":"gdscript","name":"godot"}\r\n')
	_put("SUB %s %s\r\n" % [_inbox, ANSWERS])


# Calls object.method(value) with the Variant of each message, from poll.
func subscribe(subject, object, method):
	var number = str(_handlers.size() + 1)
	_handlers[number] = [object, method]
	_put("SUB %s %s\r\n" % [subject, number])


# Sends a Variant without waiting for an answer.
func publish(subject, value):
	_send(subject, "", value)


# Sends a Variant, waits for the answer and returns it, a Variant too; null if none comes.
func ask(subject, value, patience_msec = 2000):
	_answer = null
	_send(subject, _inbox + " ", value)
	var end = OS.get_ticks_msec() + patience_msec
	while _answer == null and error == "" and OS.get_ticks_msec() < end:
		poll()
		OS.delay_msec(1)
	return _answer


# Handles everything that the server sent. Call it in every frame.
func poll():
	if error != "":
		return
	if _tcp.get_status() != StreamPeerTCP.STATUS_CONNECTED:
		error = "the connection to NATS is gone"
		return
	var n = _tcp.get_available_bytes()
	if n > 0:
		_in.append_array(_tcp.get_data(n)[1])
	while _understand():
		pass


func _send(subject, reply, value):
	var body = var2bytes(value)
	_put("HPUB %s %s%d %d\r\n%s" % [subject, reply, HEADER.length(), HEADER.length() + body.size(), HEADER])
	_tcp.put_data(body)
	_put("\r\n")


func _put(text):
	_tcp.put_data(text.to_utf8())


# Handles one line, and the body that it announces, and removes both from the input.
func _understand():
	if _in.size() == 0:
		return false
	var end = _in.subarray(0, int(min(_in.size(), LINE_MAX)) - 1).get_string_from_ascii().find("\r\n")
	if end < 0:
		return false
	var words = _in.subarray(0, end).get_string_from_ascii().strip_edges().split(" ")
	match words[0]:
		"MSG", "HMSG": # subject, subscription, [reply], [bytes of headers], bytes
			var size = int(words[-1])
			if _in.size() < end + 2 + size + 2:
				return false
			_take(end + 2)
			var body = _take(size)
			_take(2)
			_deliver(words[2], body, int(words[-2]) if words[0] == "HMSG" else 0)
			return true
		"PING":
			_put("PONG\r\n")
		"-ERR":
			error = words.join(" ")
	_take(end + 2)
	return true


# Removes that many bytes from the input and returns them.
func _take(n):
	var taken = _in.subarray(0, n - 1) if n > 0 else PoolByteArray()
	_in = _in.subarray(n, _in.size() - 1) if n < _in.size() else PoolByteArray()
	return taken


# The server sends an empty answer if there are no responders.
func _deliver(subscription, body, headers):
	if body.size() > headers:
		var value = bytes2var(body.subarray(headers, body.size() - 1))
		if subscription == ANSWERS:
			_answer = value
		else:
			_handlers[subscription][0].call(_handlers[subscription][1], value)
	elif subscription == ANSWERS:
		error = "no responders: is a relay running?"

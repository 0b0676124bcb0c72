# The part of a NATS client that a game server needs, for Godot 3: messages whose bodies are Variants, requests, and
# subscriptions. It reconnects by itself. The protocol has lines of text, some with a body:
# https://docs.nats.io/reference/reference-protocols/nats-protocol
#
#	var nats = preload("nats.gd").new()
#	nats.open("127.0.0.1", 4222)                                       # also: {"user": …, "password": …, "token": …, "tls": true}
#	nats.subscribe("dnp.v1.event.demo", self, "on_event")              # func on_event(value, message)
#	var answer = nats.ask("dnp.v1.publish.demo", {"op": "clear"})      # waits; null if no answer comes, nats.problem says why
#	nats.poll()                                                        # in every frame
extends Reference

const CONTENT = "application/x-godot-variant; version=3"
const HEADER = "NATS/1.0\r\nContent-Type: " + CONTENT + "\r\n\r\n"
const LINE_MAX = 65536 # the first line of a server tells all its neighbours
const BODY_MAX = 8388608
const WAITING_MAX = 1048576 # bytes to send while there is no connection; what is beyond is dropped
const RETRY = [100, 500, 2000] # ms between attempts to connect
const SILENCE = 40000 # ms without a byte, after which the connection is given up
const PING = 15000
const UNHEARD = 100 # ms between requests to which nobody listens

var error = "" # why the connection cannot work: its user is refused, for example; it is not tried again
var problem = "" # why there is no connection at the moment, or why the latest request has no answer

var _host = ""
var _port = 0
var _options = {}
var _state = "closed" # connecting, greeting, open
var _tcp = null
var _ssl = null
var _stream = null # _tcp or _ssl
var _in = PoolByteArray() # received and not yet handled
var _waiting = PoolByteArray() # to send when there is a connection
var _dropped = 0
var _tries = 0
var _next_try = 0
var _heard = 0
var _pinged = 0
var _subscriptions = {} # by number: [subject, object, method]
var _number = 0
var _inbox = "_INBOX.godot%d.%d." % [OS.get_process_id(), OS.get_ticks_usec()]
var _asked = 0
var _unheard = {} # requests to which nobody listened
var _answers = {} # by the last token of their subject: null while a request waits, then [value]


# Connects, and waits for up to patience_msec. Options: user, password, token (of NATS), tls, certificate (an
# X509Certificate to trust), tls_name (in the certificate, if it is not the host: Godot 3 does not find addresses in
# certificates), and insecure: the certificate is not checked.
func open(host, port, options = {}, patience_msec = 3000):
	_host = host
	_port = port
	_options = options
	_connect()
	var end = OS.get_ticks_msec() + patience_msec
	while _state != "open" and error == "" and OS.get_ticks_msec() < end:
		poll()
		OS.delay_msec(1)
	return _state == "open"


func is_open():
	return _state == "open"


# Ends the connection for good, after what was sent.
func close():
	if error == "":
		error = "closed"
	_drop("closed")


# Calls object.method(value, message) for each message, from poll. The value is a Variant, or what JSON says, where the
# message is one; of a message of a client it is its bytes. message has subject, reply, headers and bytes.
func subscribe(subject, object, method):
	_number += 1
	_subscriptions[str(_number)] = [subject, object, method]
	if _state == "open":
		_write(("SUB %s %d\r\n" % [subject, _number]).to_utf8())
	return str(_number)


func unsubscribe(number):
	if _subscriptions.erase(number) and _state == "open":
		_write(("UNSUB %s\r\n" % number).to_utf8())


# Sends a Variant without waiting for an answer.
func publish(subject, value, reply = ""):
	_send(subject, reply, HEADER, var2bytes(value))


# Sends bytes or text as they are, with headers, as messages to clients are: {"Dnp-Reliable": "false"}.
func publish_raw(subject, data, headers = {}, reply = ""):
	var text = ""
	if not headers.empty():
		text = "NATS/1.0\r\n"
		for name in headers:
			text += "%s: %s\r\n" % [name, headers[name]]
		text += "\r\n"
	_send(subject, reply, text, data.to_utf8() if typeof(data) == TYPE_STRING else data)


# Sends a Variant, waits for the answer and returns it; null if none comes, and `problem` says why. Each request has an
# inbox of its own, so that an answer that comes too late is nobody else's. While nobody listens to the subject the
# request is sent again: a relay may be starting.
func ask(subject, value, patience_msec = 2000):
	_asked += 1
	var key = str(_asked)
	_answers[key] = null
	problem = ""
	publish(subject, value, _inbox + key)
	var end = OS.get_ticks_msec() + patience_msec
	var again = 0
	while _answers[key] == null and error == "" and OS.get_ticks_msec() < end:
		poll()
		if _unheard.has(key) and OS.get_ticks_msec() >= again:
			again = OS.get_ticks_msec() + UNHEARD
			_unheard.erase(key)
			publish(subject, value, _inbox + key)
		OS.delay_msec(1)
	_unheard.erase(key)
	var answer = _answers[key]
	_answers.erase(key)
	if answer == null:
		problem = "no answer within %d ms" % patience_msec if problem == "" else problem
		return null
	return answer[0]


# Handles everything that the server sent, and connects again where that is necessary. Call it in every frame.
func poll():
	if error != "":
		return
	var now = OS.get_ticks_msec()
	if _state == "closed":
		if now >= _next_try:
			_connect()
		return
	if _state == "connecting":
		_connecting(now)
		return
	if _ssl != null:
		_ssl.poll()
	if _gone():
		_drop("the connection to NATS is gone" if problem == "" else problem)
		return
	var n = _stream.get_available_bytes()
	if n > 0:
		_heard = now
		_in.append_array(_stream.get_data(n)[1])
		_handle()
	elif now - _heard > SILENCE:
		_drop("NATS is silent")
	elif _state == "open" and now - max(_heard, _pinged) > PING:
		_pinged = now
		_write("PING\r\n".to_utf8())


func _gone():
	if _tcp.get_status() != StreamPeerTCP.STATUS_CONNECTED:
		return true
	return _ssl != null and _ssl.get_status() != StreamPeerSSL.STATUS_CONNECTED


# ---- the connection

func _connect():
	_tcp = StreamPeerTCP.new()
	_ssl = null
	_stream = _tcp
	_in = PoolByteArray()
	_heard = OS.get_ticks_msec()
	_state = "connecting"
	if _tcp.connect_to_host(_host, _port) != OK:
		_drop("no NATS server at %s:%d" % [_host, _port])


func _connecting(now):
	match _tcp.get_status():
		StreamPeerTCP.STATUS_CONNECTED:
			_tcp.set_no_delay(true)
			_state = "greeting"
		StreamPeerTCP.STATUS_CONNECTING:
			if now - _heard > 5000:
				_drop("no NATS server at %s:%d" % [_host, _port])
		_:
			_drop("no NATS server at %s:%d" % [_host, _port])


# The server says who it is; then TLS begins, if it is wanted, and the client says who it is.
func _greeted():
	if _options.get("tls", false):
		_ssl = StreamPeerSSL.new()
		_ssl.blocking_handshake = true
		var verify = not _options.get("insecure", false)
		if _ssl.connect_to_stream(_tcp, verify, _options.get("tls_name", _host) if verify else "", _options.get("certificate")) != OK or _gone():
			_drop("no TLS with %s:%d" % [_host, _port])
			return
		_stream = _ssl
	var who = {"verbose": false, "pedantic": false, "headers": true, "no_responders": true, "lang": "gdscript", "version": "1", "name": "godot"}
	for row in [["user", "user"], ["password", "pass"], ["token", "auth_token"]]:
		if _options.get(row[0], "") != "":
			who[row[1]] = _options[row[0]]
	who["tls_required"] = _ssl != null
	var text = "CONNECT %s\r\nSUB %s* 0\r\n" % [to_json(who), _inbox]
	for number in _subscriptions:
		text += "SUB %s %s\r\n" % [_subscriptions[number][0], number]
	_write((text + "PING\r\n").to_utf8()) # whose answer says that the server takes this client


func _opened():
	_state = "open"
	_tries = 0
	problem = ""
	var waiting = _waiting
	_waiting = PoolByteArray()
	_write(waiting)


# Ends the connection. The next one is tried a little later.
func _drop(why):
	problem = why
	_state = "closed"
	if _tcp != null:
		_tcp.disconnect_from_host()
	_next_try = OS.get_ticks_msec() + RETRY[int(min(_tries, RETRY.size() - 1))]
	_tries += 1


# ---- sending

func _send(subject, reply, header, body):
	var sizes = str(body.size())
	if header != "":
		sizes = "%d %d" % [header.to_utf8().size(), header.to_utf8().size() + body.size()]
	var head = "%s %s %s%s\r\n%s" % ["PUB" if header == "" else "HPUB", subject, reply + " " if reply != "" else "", sizes, header]
	var p = head.to_utf8()
	p.append_array(body)
	p.append_array(PoolByteArray([13, 10]))
	if _state == "open":
		_write(p)
	elif _waiting.size() + p.size() <= WAITING_MAX:
		_waiting.append_array(p)
	else:
		_dropped += 1


func _write(p):
	if p.size() > 0 and _stream.put_data(p) != OK:
		_drop("the connection to NATS is gone")


# ---- receiving

# Handles what the input has of whole messages, and keeps the rest.
func _handle():
	var at = 0
	while _state != "closed":
		var end = _line_end(at)
		if end < 0:
			if _in.size() - at > LINE_MAX:
				_drop("a line of NATS has more than %d bytes" % LINE_MAX)
			break
		var line = _in.subarray(at, end - 1).get_string_from_utf8() if end > at else ""
		var words = line.split(" ", false)
		var next = end + 2
		if words.size() > 0 and (words[0] == "MSG" or words[0] == "HMSG"): # subject, subscription, [reply], [bytes of headers], bytes
			var size = int(words[-1])
			if size > BODY_MAX:
				_drop("a message of NATS has %d bytes" % size)
				return
			if _in.size() < next + size + 2:
				break
			var heads = int(words[-2]) if words[0] == "HMSG" else 0
			var reply = words[3] if words.size() == (6 if heads > 0 else 5) else ""
			var bytes = _in.subarray(next, next + size - 1) if size > 0 else PoolByteArray()
			_in = _in.subarray(next + size + 2, _in.size() - 1) if _in.size() > next + size + 2 else PoolByteArray()
			at = 0
			_deliver(words[1], words[2], reply, bytes, heads)
			continue
		at = next
		_control(words, line)
	if at > 0 and _state != "closed":
		_in = _in.subarray(at, _in.size() - 1) if at < _in.size() else PoolByteArray()


func _line_end(from):
	for i in range(from, int(min(_in.size() - 1, from + LINE_MAX))):
		if _in[i] == 13 and _in[i + 1] == 10:
			return i
	return -1


func _control(words, line):
	match words[0] if words.size() > 0 else "":
		"INFO":
			if _state == "greeting":
				_greeted()
		"PING": _write("PONG\r\n".to_utf8())
		"PONG":
			if _state == "greeting":
				_opened()
		"-ERR":
			problem = line
			if "authorization violation" in line.to_lower():
				error = line # the next attempt would fail, too


func _deliver(subject, subscription, reply, bytes, heads):
	var headers = _headers(bytes.subarray(0, heads - 1).get_string_from_utf8() if heads > 0 else "")
	var body = bytes.subarray(heads, bytes.size() - 1) if heads < bytes.size() else PoolByteArray()
	var value = _value(subject, headers.get("content-type", ""), body)
	if subscription != "0":
		if _subscriptions.has(subscription):
			var s = _subscriptions[subscription]
			s[1].call(s[2], value, {"subject": subject, "reply": reply, "headers": headers, "bytes": body})
		return
	var key = subject.substr(_inbox.length())
	if not _answers.has(key):
		return # too late
	if body.size() == 0 and headers.get("status", "") == "503":
		problem = "no responders: is a relay running?"
		_unheard[key] = true
		return
	_answers[key] = [value]


# The names of headers are in lower case.
func _headers(text):
	var headers = {}
	var lines = text.split("\r\n", false)
	for i in range(lines.size()):
		var colon = lines[i].find(":")
		if i == 0:
			headers["status"] = lines[i].substr(9, 3)
		elif colon > 0:
			headers[lines[i].substr(0, colon).to_lower()] = lines[i].substr(colon + 1).strip_edges()
	return headers


# The header Content-Type says what a body is. Without it, messages of clients are bytes, and all others JSON, or Variants
# of a relay that does not name them: no Variant begins with a brace.
func _value(subject, content, body):
	if content == "" and (".from." in subject or body.size() == 0):
		return body
	if content.begins_with("application/x-godot-variant") or (content == "" and body[0] != 123):
		return bytes2var(body) # never with objects: to decode one is to run it
	if content == "" or content.begins_with("application/json"):
		var parsed = JSON.parse(body.get_string_from_utf8())
		if parsed.error == OK:
			return parsed.result
	return body

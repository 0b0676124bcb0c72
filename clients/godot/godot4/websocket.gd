# Written by hand; scripts/godot4 writes all other files of the addon. Tested with a web build of Godot 4.6.
# A carrier of datagrams: a WebSocket, of which each binary message is one. The edge greets with the token of
# the session, with which another WebSocket continues it (INTERFACES.md, "Clients that do not speak UDP").
extends RefCounted

const BUFFER = 262144 # bytes

var status = "opening" # open, closed
var code = 0 # why it is closed, as edges say it; 0 if the connection is lost
var reason = ""
var token = ""
var resumed = false
var ordered = true # nothing gets lost while it lasts

# The engine of Godot 3, and maybe this one, outside of browsers, takes the codes 1012 and 1013, with which edges say that they leave or are full, for
# an error, and then hears nothing any more and says nothing about it. So the client asks sooner whether the edge is there.
var hidden_close = OS.get_name() != "Web"

var _ws = WebSocketPeer.new()


func open(url, resume, options):
	_ws.inbound_buffer_size = BUFFER
	_ws.outbound_buffer_size = BUFFER
	var protocols = PackedStringArray(["dnp.v1"])
	if resume != "":
		protocols.append("dnp.resume." + resume)
	_ws.supported_protocols = protocols
	var tls = null
	if options.get("insecure", false):
		tls = TLSOptions.client_unsafe()
	elif options.has("certificate"):
		tls = TLSOptions.client(options["certificate"])
	if _ws.connect_to_url(url.text, tls) != OK:
		_end("no connection to %s" % url.text)


func _end(why):
	status = "closed"
	if reason == "":
		reason = why


func poll():
	if status == "closed":
		return
	_ws.poll()
	if _ws.get_ready_state() == WebSocketPeer.STATE_CLOSED:
		code = max(0, _ws.get_close_code())
		reason = _ws.get_close_reason()
		_end("the connection is lost")
	elif status == "opening" and _ws.get_ready_state() == WebSocketPeer.STATE_OPEN and _ws.get_available_packet_count() > 0:
		_greeted(_ws.get_packet())


func _greeted(p):
	var text = _ws.was_string_packet()
	var parsed = JSON.new()
	var g = parsed.data if parsed.parse(p.get_string_from_utf8()) == OK else null
	if not text or _ws.get_selected_protocol() != "dnp.v1" or typeof(g) != TYPE_DICTIONARY or typeof(g.get("token")) != TYPE_STRING or g["token"].length() != 64:
		close()
		_end("the server does not greet as an edge does")
		return
	token = g["token"]
	resumed = g.get("resumed") == true
	status = "open"


# Returns the next datagram; null if there is none.
func receive():
	if status == "opening" or _ws.get_available_packet_count() == 0:
		return null
	return _ws.get_packet()


func send(p):
	if status == "open":
		_ws.send(p, WebSocketPeer.WRITE_MODE_BINARY)


func close():
	if status != "closed":
		_ws.close(1000)
		_ws.poll()
	status = "closed"

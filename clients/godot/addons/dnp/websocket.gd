# A carrier of datagrams: a WebSocket, of which each binary message is one. The edge greets with the token of
# the session, with which another WebSocket continues it (INTERFACES.md, "Clients that do not speak UDP").
extends Reference

const BUFFER_KIB = 256

var status = "opening" # open, closed
var code = 0 # why it is closed, as edges say it; 0 if the connection is lost
var reason = ""
var token = ""
var resumed = false
var ordered = true # nothing gets lost while it lasts

# The engine, outside of browsers, takes the codes 1012 and 1013, with which edges say that they leave or are full, for
# an error, and then hears nothing any more and says nothing about it. So the client asks sooner whether the edge is there.
var hidden_close = OS.get_name() != "HTML5"

var _ws = WebSocketClient.new()
var _peer = null


func open(url, resume, options):
	_ws.connect("connection_established", self, "_on_established")
	_ws.connect("connection_error", self, "_on_error")
	_ws.connect("connection_closed", self, "_on_closed")
	_ws.connect("server_close_request", self, "_on_close_request")
	_ws.set_buffers(BUFFER_KIB, 2048, BUFFER_KIB, 2048)
	_ws.verify_ssl = not options.get("insecure", false)
	if options.has("certificate"):
		_ws.trusted_ssl_certificate = options["certificate"]
	var protocols = PoolStringArray(["dnp.v1"])
	if resume != "":
		protocols.append("dnp.resume." + resume)
	if _ws.connect_to_url(url.text, protocols) != OK:
		_end("no connection to %s" % url.text)


func _on_established(protocol):
	_peer = _ws.get_peer(1)
	if protocol != "dnp.v1":
		_end("the server does not speak dnp.v1")


func _on_error():
	_end("no connection")


func _on_close_request(c, why):
	code = c
	reason = why


func _on_closed(_clean):
	_end("the connection is lost")


func _end(why):
	status = "closed"
	if reason == "":
		reason = why


func poll():
	if status != "closed":
		_ws.poll()
	if status == "opening" and _peer != null and _peer.get_available_packet_count() > 0:
		_greeted(_peer.get_packet())


func _greeted(p):
	var parsed = JSON.parse(p.get_string_from_utf8())
	var g = parsed.result if parsed.error == OK else null
	if not _peer.was_string_packet() or typeof(g) != TYPE_DICTIONARY or typeof(g.get("token")) != TYPE_STRING or g["token"].length() != 64:
		close()
		_end("the server does not greet as an edge does")
		return
	token = g["token"]
	resumed = g.get("resumed") == true
	status = "open"


# Returns the next datagram; null if there is none.
func receive():
	if status == "opening" or _peer == null or _peer.get_available_packet_count() == 0:
		return null
	return _peer.get_packet()


func send(p):
	if status == "open":
		_peer.put_packet(p)


func close():
	if status != "closed":
		_ws.disconnect_from_host(1000)
		_ws.poll()
	status = "closed"

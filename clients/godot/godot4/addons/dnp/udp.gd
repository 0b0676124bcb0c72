# Written by scripts/godot4 from the addon for Godot 3. Tested with a web build of Godot 4.6.
# A carrier of datagrams: UDP. Each attempt is a session of its own.
extends RefCounted

var status = "opening" # open, closed
var code = 0 # why it is closed, as edges say it; 0 for none
var reason = ""
var token = "" # the session token; UDP has none
var resumed = false
var hidden_close = false
var ordered = false # datagrams get lost, and overtake each other

var _udp = PacketPeerUDP.new()


func open(url, _resume, _options):
	var error = _udp.connect_to_host(url.host, url.port)
	if error == OK:
		status = "open"
	else:
		status = "closed"
		reason = "no address for %s" % url.host


func poll():
	pass


# Returns the next datagram; null if there is none. The socket takes those of the edge's address only.
func receive():
	if status == "open" and _udp.get_available_packet_count() > 0:
		return _udp.get_packet()
	return null


func send(p):
	_udp.put_packet(p)


func close():
	status = "closed"
	_udp.close()

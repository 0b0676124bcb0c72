# variant_websocket.gd for Godot 4: a client without any addon. Run it beside `relay dev`:
#
#	godot --headless -s variant_websocket4.gd
extends SceneTree

var socket = WebSocketPeer.new()
var greeted = false
var lamp = 0 # its id


func _initialize():
	socket.supported_protocols = ["dnp.variant.v4"]
	if socket.connect_to_url("ws://127.0.0.1:3480/dnp") != OK:
		quit(1)


func _process(_delta):
	socket.poll()
	if socket.get_ready_state() == WebSocketPeer.STATE_CLOSED:
		quit(1)
	elif socket.get_ready_state() == WebSocketPeer.STATE_OPEN and not greeted:
		greeted = true
		socket.put_var(["hello", {"version": 1}])
	while socket.get_available_packet_count() > 0:
		handle(socket.get_var())


func handle(m):
	print(m)
	if m[0] == "link" and m[2] == "lamp": # id, key, names, values, and whether this client may write
		lamp = m[1]
		socket.put_var(["set", lamp, {0: 1}]) # the value with index 0
	if m[0] == "set" and m[1] == lamp:
		socket.put_var(["msg", "the lamp changed".to_utf8_buffer(), true])
	if m[0] == "msg" and m[1].get_string_from_utf8() == "bye":
		quit()

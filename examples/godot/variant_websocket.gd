# A client in less than 30 lines, without any addon: it prints what changes, puts the lamp on, and sends a message when the lamp
# changes. Run it beside `relay dev`, or with DNP=ws://host:port/dnp in the environment:
#
#	godot3-server -s variant_websocket.gd
extends SceneTree

var socket = WebSocketClient.new()
var lamp = 0 # its id


func _initialize():
	var url = OS.get_environment("DNP") if OS.has_environment("DNP") else "ws://127.0.0.1:3480/dnp"
	socket.connect("connection_established", self, "on_open")
	socket.connect("data_received", self, "on_data")
	socket.connect("connection_closed", self, "on_closed")
	socket.connect("connection_error", self, "on_closed", [false])
	if socket.connect_to_url(url, ["dnp.variant.v3"]) != OK:
		quit(1)


func on_open(_protocol):
	socket.get_peer(1).set_write_mode(WebSocketPeer.WRITE_MODE_BINARY)
	socket.get_peer(1).put_var(["hello", {"version": 1}])


func on_data():
	var m = socket.get_peer(1).get_var()
	print(m)
	if m[0] == "link" and m[2] == "lamp": # id, key, names, values, and whether this client may write
		lamp = m[1]
		socket.get_peer(1).put_var(["set", lamp, {0: 1}]) # the value with index 0
	if m[0] == "set" and m[1] == lamp:
		socket.get_peer(1).put_var(["msg", "the lamp changed".to_utf8(), true])
	if m[0] == "msg" and m[1].get_string_from_utf8() == "bye":
		quit()


func on_closed(_clean):
	quit(1)


func _idle(_delta):
	socket.poll()

# Sends messages to an edge that acknowledges only the hello, closes, and says when the edge knows. EDGE is a URL.
extends SceneTree

const Client = preload("../addons/dnp/client.gd")

var dnp = Client.new()


func _initialize():
	dnp.connect("message", self, "_on_message")
	dnp.connect("closed", self, "_on_closed")
	dnp.open(OS.get_environment("EDGE"), {"reconnect": false})


func _idle(_delta):
	var leaving = dnp.is_leaving()
	dnp.poll()
	OS.delay_msec(1)
	if leaving and not dnp.is_leaving():
		print("the edge knows, or does not answer")
		quit()


func _on_message(_bytes, _reliable):
	var long = PoolByteArray()
	long.resize(50000)
	for data in ["lost", long, "waits"]: # the long one has more parts than may be under way
		dnp.send(data)
	dnp.offer("me", [["uint8", 1]])
	dnp.poll()
	dnp.close()


func _on_closed(reason, _detail, _retry_in):
	print("closed: ", reason, " ", dnp.unacknowledged, " ", dnp.is_open())

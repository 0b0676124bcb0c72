# Sends commands about the states "gate" and "wall", and says their answers. EDGE is a URL.
extends SceneTree

const Client = preload("../addons/dnp/client.gd")

const MANY = 40

var dnp = Client.new()
var asked = false
var done = {} # how often each ticket was answered
var kept = -1 # the command that the game does not answer


func _initialize():
	dnp.connect("answered", self, "_on_answered")
	dnp.connect("message", self, "_on_message")
	dnp.open(OS.get_environment("EDGE"), {"reconnect": false}) # 4: dnp.open(FileAccess.get_file_as_string("res://EDGE"), {"reconnect": false})


func _idle(_delta):
	dnp.poll()
	OS.delay_msec(1)
	if asked or not dnp.states.has("gate") or not dnp.states.has("wall"):
		return
	asked = true
	var gate = dnp.states["gate"]
	for i in range(MANY):
		if dnp.command(gate, "use", "body %d" % i) != i + 1:
			print("the command has another number")
	dnp.command(gate, "break")
	dnp.command(dnp.states["wall"], "use")
	print("refused: ", dnp.command(gate, ""), " ", dnp.command(gate, "%065d" % 0))


func _on_answered(ticket, error, body):
	done[ticket] = done.get(ticket, 0) + 1
	if done[ticket] > 1:
		print("a command is answered twice: ", ticket)
	var text = body.get_string_from_utf8()
	if ticket <= MANY:
		if error != "" or text != "done body %d" % (ticket - 1):
			print("command ", ticket, " is answered ", error, " ", text)
	else:
		print("answer ", ticket - MANY, ": ", error, " ", text)
	if done.size() == MANY + 2 and kept < 0:
		print("all are answered")
		dnp.send(PoolByteArray([0xc5, 1, 2]))
		kept = dnp.command(dnp.states["gate"], "wait")
		dnp.send("now")


func _on_message(bytes, _reliable):
	print("message ", Array(bytes))

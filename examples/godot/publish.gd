# A game server without a game: it publishes an orb that circles, and prints what clients
# change about it. The orb is gone when a client sets its hp to 0. Run the script beside
# `relay dev`, or with NATS=host:port and SPACE=name in the environment:
#
#	godot3-server -s publish.gd
extends SceneTree

const Nats = preload("nats.gd")
const TURNS_PER_SECOND = 20

var nats = Nats.new()
var space = setting("SPACE", "demo")
var turn = 0


func _initialize():
	var address = setting("NATS", "127.0.0.1:4222").split(":")
	nats.open(address[0], int(address[1]))
	if nats.error != "":
		return # _idle prints the error
	nats.subscribe("dnp.v1.event.%s.godot3" % space, self, "on_event")
	Engine.target_fps = TURNS_PER_SECOND
	tell("put", publish({
		"op": "put", "key": "orb", "access": "read-write", "farewell": "the orb is gone",
		"values": [
			{"name": "pos", "type": "vector3f32", "value": Vector3(2, 1, 0), "precision": 0.001},
			{"name": "tint", "type": "quaternionf16", "value": Color(1, 0.5, 0)},
			{"name": "hp", "type": "uint8", "value": 100},
			{"name": "name", "type": "string", "value": "orb"},
		],
	}))
	tell("an error", publish({"op": "set", "key": "orb", "values": {"hp": 256}}))


# One turn of the game.
func _idle(_delta):
	nats.poll()
	if nats.error != "":
		printerr(nats.error)
		quit(1)
		return
	turn += 1
	var angle = turn * 0.1
	# without waiting for an answer: the next turn replaces a lost message
	nats.publish("dnp.v1.publish.%s.orb" % space, {"op": "set", "values": {"pos": Vector3(2 * cos(angle), 1, 2 * sin(angle))}})


func publish(op):
	return nats.ask("dnp.v1.publish." + space, op)


func tell(what, answer):
	print(what, ": ", answer)


func on_event(event):
	if event.type == "changed":
		print(event.client, " changed ", event.key, ": ", event.values)
		if event.values.get("hp") == 0:
			tell("remove", publish({"op": "remove", "key": "orb"}))
			quit()


func setting(name, default):
	return OS.get_environment(name) if OS.has_environment(name) else default

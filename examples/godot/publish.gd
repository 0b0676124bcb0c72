# A game server without a game: it publishes an orb that circles, and prints what clients
# change about it. The orb is gone when a client sets its hp to 0. Run the script beside
# `relay dev`, or with NATS=host:port and SPACE=name in the environment, and where the server wants it NATS_USER and
# NATS_PASSWORD, or NATS_TOKEN, and NATS_TLS=1:
#
#	godot3-server -s publish.gd
extends SceneTree

const Nats = preload("nats.gd")
const TURNS_PER_SECOND = 20

var nats = Nats.new()
var space = setting("SPACE", "demo")
var turn = 0
var done = false
var gone_at = 0 # the turn in which the orb goes; 0 while it stays


func _initialize():
	var address = setting("NATS", "127.0.0.1:4222").split(":")
	if not nats.open(address[0], int(address[1]), {"user": setting("NATS_USER", ""), "password": setting("NATS_PASSWORD", ""), "token": setting("NATS_TOKEN", ""), "tls": setting("NATS_TLS", "") != ""}):
		printerr(nats.error if nats.error != "" else nats.problem)
		done = true
		return
	nats.subscribe("dnp.v1.event.%s.godot3" % space, self, "on_change")
	nats.subscribe("dnp.v1.event.%s" % space, self, "on_event")
	nats.subscribe("dnp.v1.from.%s.*" % space, self, "on_message")
	Engine.target_fps = TURNS_PER_SECOND
	put_orb()
	tell("an error", publish({"op": "set", "key": "orb", "values": {"hp": 256}}))


func put_orb():
	tell("put", publish({
		"op": "put", "key": "orb", "access": "read-write", "farewell": "the orb is gone",
		"values": [
			{"name": "pos", "type": "vector3f32", "value": Vector3(2, 1, 0), "precision": 0.001},
			{"name": "tint", "type": "quaternionf16", "value": Color(1, 0.5, 0)},
			{"name": "hp", "type": "uint8", "value": 100},
			{"name": "name", "type": "string", "value": "orb"},
		],
	}))


# One turn of the game.
func _idle(_delta):
	nats.poll()
	if done or nats.error != "":
		quit(1)
		return
	turn += 1
	if gone_at > 0 and turn >= gone_at:
		tell("remove", publish({"op": "remove", "key": "orb"}))
		nats.close()
		done = true
		quit()
		return
	var angle = turn * 0.1
	# without waiting for an answer: the next turn replaces a lost message
	nats.publish("dnp.v1.publish.%s.orb" % space, {"op": "set", "values": {"pos": Vector3(2 * cos(angle), 1, 2 * sin(angle))}})


func publish(op):
	return nats.ask("dnp.v1.publish." + space, op)


func tell(what, answer):
	print(what, ": ", answer)


# What clients change comes as Variants.
func on_change(event, _message):
	if event.type == "changed":
		print(event.client, " changed ", event.key, ": ", event.values)
		if event.values.get("hp") == 0 and gone_at == 0:
			gone_at = turn + TURNS_PER_SECOND # so that clients see what happened to it


# All other events are JSON.
func on_event(event, _message):
	match event.type:
		"joined", "left": print(event.client, " ", event.type)
		"reassert": put_orb() # another relay holds the space, which may not know the latest change


func on_message(bytes, message):
	var client = message.subject.split(".")[4]
	print(client, " says ", bytes.get_string_from_utf8())
	nats.publish_raw("dnp.v1.to.%s.%s" % [space, client], "the orb hears you")


func setting(name, default):
	return OS.get_environment(name) if OS.has_environment(name) else default

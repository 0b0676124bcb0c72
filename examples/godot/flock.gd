# A game server for the game beside it: a flock of boids (BOIDS, 40), and a chat that returns to all what one player says.
# Run it beside `relay dev`, or with NATS=host:port and SPACE=name:
#
#	godot3-server -s flock.gd
extends SceneTree

const Nats = preload("nats.gd")
const TURNS_PER_SECOND = 15
const SPEED = 2.0
const FIELD = Vector2(6.0, 3.4) # half its size

var nats = Nats.new()
var space = setting("SPACE", "demo")
var boids = int(setting("BOIDS", "40"))
var at = []
var speed = []


func _initialize():
	var address = setting("NATS", "127.0.0.1:4222").split(":")
	if not nats.open(address[0], int(address[1])):
		printerr(nats.error + nats.problem)
		quit(1)
		return
	nats.subscribe("dnp.v1.from.%s.*" % space, self, "on_said")
	nats.subscribe("dnp.v1.event.%s" % space, self, "on_event")
	Engine.target_fps = TURNS_PER_SECOND
	seed(7)
	for _i in range(boids):
		at.append(Vector2(rand_range(-FIELD.x, FIELD.x), rand_range(-FIELD.y, FIELD.y)))
		speed.append(Vector2(SPEED, 0).rotated(rand_range(-PI, PI)))
	put()


func put():
	var ops = []
	for i in range(boids):
		ops.append({"op": "put", "key": "boid.%d" % i, "values": [
			{"name": "pos", "type": "vector3f32", "value": Vector3(at[i].x, 0, at[i].y), "precision": 0.01},
			{"name": "heading", "type": "float32", "value": speed[i].angle(), "precision": 0.01},
		]})
	print("put: ", nats.ask("dnp.v1.publish." + space, {"ops": ops}), " ", nats.problem)


func _idle(delta):
	nats.poll()
	if nats.error != "":
		quit(1)
		return
	var ops = []
	for i in range(boids):
		steer(i, delta)
		ops.append({"op": "set", "key": "boid.%d" % i, "values": {"pos": Vector3(at[i].x, 0, at[i].y), "heading": speed[i].angle()}})
	nats.publish("dnp.v1.publish." + space, {"ops": ops})


# Boids keep together, go where their neighbours go, and keep away from those that are very near, and from the edge.
func steer(i, delta):
	var here = at[i]
	var middle = Vector2()
	var course = Vector2()
	var away = Vector2()
	var n = 0
	for j in range(boids):
		var to = at[j] - here
		var far = to.length_squared()
		if j == i or far > 2.0:
			continue
		n += 1
		middle += to
		course += speed[j]
		if far < 0.15:
			away -= to * 8
	if n > 0:
		speed[i] += (middle / n * 0.8 + (course / n - speed[i]) * 1.5 + away) * delta
	for axis in [0, 1]:
		if abs(here[axis]) > FIELD[axis] - 0.6:
			speed[i][axis] -= sign(here[axis]) * 6 * delta
	speed[i] = speed[i].normalized() * SPEED
	at[i] = here + speed[i] * delta


func on_event(event, _message):
	if event.type == "reassert":
		put() # another relay holds the space, which may not know the states


func on_said(bytes, message):
	var text = "%s: %s" % [message.subject.split(".")[4].substr(0, 6), bytes.get_string_from_utf8()]
	nats.publish_raw("dnp.v1.toall.%s" % space, text)


func setting(name, default):
	return OS.get_environment(name) if OS.has_environment(name) else default

# Tests of DnpSync and of values, without an edge and with times of their own. It says what is wrong, and then "done".
extends SceneTree

const Commands = preload("../addons/dnp/commands.gd")
const Connection = preload("../addons/dnp/connection.gd")
const State = preload("../addons/dnp/state.gd")
const Sync = preload("../addons/dnp/sync.gd")
const Value = preload("../addons/dnp/value.gd")

var connection = Connection.new()
var sync_ = Sync.new()


func _initialize():
	settle()
	sync_.scale_by = 10.0
	sync_.bind = {"pos": "position", "spin": "rotation", "tint": "modulate", "name": "editor_description", "gun.aim": "scale", "gun.shots": "z_index"}
	sync_.spawn = {"npc.*": Node2D, "npc.ghost": null}
	even()
	rest()
	write()
	spawn()
	described()
	fields()
	commands()
	print("done")
	quit()


func check(what, ok):
	if not ok:
		print("WRONG: ", what)


func state(key, specs):
	var s = State.new()
	s.key = key
	s.link = connection.states.size()
	s.writable = true
	for spec in specs:
		s.types.append(Value.type_named(spec[0]))
		s.values.append(connection.settle(s.types[-1], spec[1]))
		s.names.append(spec[2])
	connection._bind(s)
	connection._up(s)
	sync_.client.states[key] = s
	return s


func change(s, i, v, now):
	s.values[i] = v
	sync_._changed(s, i, now)


# What a type cannot have is refused.
func settle():
	for row in [["uint8", 256], ["uint8", -1], ["sint16", 40000], ["uint8", 0.5], ["point2s8", Vector2(1, 200)], ["vector3f32", Vector2()], ["float32", "x"], ["data", 5]]:
		check("%s takes %s" % row, connection.settle(Value.type_named(row[0]), row[1]) == null)
	for row in [["uint8", 255, 255], ["uint8", true, 1], ["sint64", -5, -5], ["quaternionf32", Color(1, 0, 0, 0.5), Quat(1, 0, 0, 0.5)], ["vector3f64", Vector3(1, 2, 3), [1.0, 2.0, 3.0]], ["data", [1, 2], PoolByteArray([1, 2])]]:
		check("%s does not take %s" % [row[0], row[1]], connection.settle(Value.type_named(row[0]), row[1]) == row[2])


# Values that come every 100 ms, up to 40 ms late, of something that goes 1 every 100 ms: each frame moves it, and evenly.
func even():
	var s = state("npc.1", [["vector2f32", Vector2(), "pos"]])
	sync_._on_linked(s)
	var node = sync_.nodes["npc.1"]
	var late = [0, 40, 10, 0, 25, 40, 5, 30]
	var arrivals = []
	for n in range(60):
		arrivals.append(100.0 * n + late[n % late.size()])
	var next = 0
	var before = null
	var least = INF
	var most = 0.0
	for f in range(360):
		var now = f * 1000.0 / 60
		while next < arrivals.size() and arrivals[next] <= now:
			change(s, 0, Vector2(next + 1, 0), arrivals[next])
			next += 1
		sync_._move(now)
		var x = node.position.x
		if before != null and f > 120 and f < 340:
			least = min(least, x - before)
			most = max(most, x - before)
		before = x
	var usual = 10.0 / 6 # of a value times scale_by, per frame
	check("motion stops or goes back: %f of %f per frame" % [least, usual], least > 0.4 * usual)
	check("motion jumps: %f of %f per frame" % [most, usual], most < 2.5 * usual)
	check("the delay is %f ms" % sync_._bound[s][0][Sync.PACE][Sync.DELAY], sync_._bound[s][0][Sync.PACE][Sync.DELAY] < 300)


# What was still for long begins to move when its next value is near, arrives, and rests.
func rest():
	var s = state("npc.2", [["float32", 0.0, "spin"], ["vector3f32", Vector3(1, 0, 0), "tint"], ["string", "a", "name"]])
	sync_._on_linked(s)
	var node = sync_.nodes["npc.2"]
	check("the first values are not shown: %s %s" % [node.modulate, node.editor_description], node.modulate == Color(1, 0, 0) and node.editor_description == "a")
	change(s, 0, 2.0, 100000.0)
	change(s, 2, "b", 100000.0)
	check("text is late", node.editor_description == "b")
	sync_._move(100000.0)
	check("it jumps", node.rotation < 0.1)
	sync_._move(100060.0)
	check("it does not move: %f" % node.rotation, node.rotation > 0.5 and node.rotation < 1.9)
	sync_._move(100200.0)
	check("it does not arrive: %f" % node.rotation, node.rotation == 2.0)
	sync_._move(100216.0)
	check("it does not rest", sync_._linear.empty() and sync_._other.empty())


# What this client writes is shown at once.
func write():
	var node = sync_.nodes["npc.2"]
	var s = sync_.client.states["npc.2"]
	change(s, 0, 5.0, 100300.0)
	check("it is not written", sync_.write("npc.2", "spin", 7) and sync_.value("npc.2", "spin") == 7.0)
	sync_._move(100310.0)
	check("it is not shown: %f" % node.rotation, node.rotation == 7.0)
	check("a value is written that does not exist", not sync_.write("npc.2", "nothing", 7) and not sync_.write("nobody", "spin", 7))


# Scenes come and go with states, whatever the game does with their nodes.
func spawn():
	var ghost = state("npc.ghost", [["uint8", 1, "on"]])
	sync_._on_linked(ghost)
	check("a ghost is seen", not sync_.nodes.has("npc.ghost"))
	var s = sync_.client.states["npc.1"]
	var node = sync_.nodes["npc.1"]
	sync_._on_unlinked(s)
	check("the scene stays", node.is_queued_for_deletion() and not sync_.nodes.has("npc.1"))
	var other = sync_.client.states["npc.2"]
	sync_.nodes["npc.2"].free()
	change(other, 0, 9.0, 100400.0)
	sync_._move(100410.0)
	sync_._on_unlinked(other)
	sync_._on_linked(other)
	check("it does not come back", is_instance_valid(sync_.nodes["npc.2"]))


func told(fields, types = ["uint8", "data"]):
	var s = State.new()
	s.message = ('{"v":1,"key":"tank","names":["hp","gun"],"fields":%s}' % fields).to_utf8()
	for name in types:
		s.types.append(Value.type_named(name))
	Connection.describe(s)
	return s


# Fields are taken from link messages, but not those that no data can have.
func described():
	var s = told('{"1":[["aim","vector3f32"],["shots","uint16"]]}')
	check("the description is %s %s %s" % [s.key, s.names, s.components], s.key == "tank" and s.names == ["hp", "gun"] and s.components.size() == 1 and s.components[1] == [["aim", 33], ["shots", 3]])
	for bad in ['{"0":[["x","uint8"]]}', '{"2":[["x","uint8"]]}', '{"-1":[["x","uint8"]]}', '{"x":[["x","uint8"]]}', '{"1":[]}', '{"1":[["x","string"]]}', '{"1":[["x","data"]]}', '{"1":[["x","float"]]}', '{"1":[["","uint8"]]}', '{"1":[["x","uint8"],["x","uint8"]]}', '{"1":[["x","uint8","y"]]}', '{"1":[["x",7]]}', '{"1":["x"]}', '{"1":{"x":"uint8"}}', '[[["x","uint8"]]]', "7"]:
		s = told(bad)
		check("fields %s are taken" % bad, s.key == "tank" and s.components.empty())
	check("too many fields are taken", told('{"1":[%s]}' % list(65)).components.empty() and told('{"1":[%s]}' % list(64)).components.size() == 1)


func list(n):
	var text = ""
	for i in range(n):
		text += '%s["x%d","uint8"]' % ["," if i > 0 else "", i]
	return text


# Fields of data move properties, and are written as a whole.
func fields():
	var s = state("npc.3", [["data", [0, 0, 128, 63, 0, 0, 0, 64, 5, 0], "gun"]])
	s.components[0] = [["aim", Value.type_named("vector2f32")], ["shots", Value.type_named("uint16")]]
	sync_._on_linked(s)
	var node = sync_.nodes["npc.3"]
	check("the first fields are not shown: %s %s" % [node.scale, node.z_index], node.scale == Vector2(10, 20) and node.z_index == 5)
	check("the fields are %s" % [sync_.fields("npc.3", "gun")], sync_.fields("npc.3", "gun")["aim"] == Vector2(1, 2) and sync_.fields("npc.3", "gun")["shots"] == 5)
	change(s, 0, s._codec.join(s.components[0], {"aim": Vector2(2, 2), "shots": 4}), 200000.0)
	check("a whole number is late", node.z_index == 4)
	check("it jumps: %s" % node.scale, node.scale == Vector2(10, 20))
	sync_._move(200060.0)
	check("it does not move: %s" % node.scale, node.scale.x > 11 and node.scale.x < 19 and abs(node.scale.y - 20) < 0.001)
	sync_._move(200200.0)
	check("it does not arrive: %s" % node.scale, node.scale == Vector2(20, 20))
	change(s, 0, PoolByteArray([1]), 200300.0) # of another size: nothing moves
	check("data of another size have fields", s.fields("gun") == null and s.fields("hp") == null and sync_.fields("nobody", "gun") == null and node.z_index == 4)
	for bad in [{"aim": Vector2()}, {"aim": Vector2(), "shots": 1, "x": 1}, {"aim": Vector2(), "x": 1}, {"aim": Vector2(), "shots": -1}, {"aim": 1, "shots": 1}, {}]:
		check("%s is written" % bad, not sync_.write("npc.3", "gun", bad))
	check("it is not written", sync_.write("npc.3", "gun", {"aim": Vector2(3, 4), "shots": 1}) and s.value("gun") == PoolByteArray([0, 0, 64, 64, 0, 0, 128, 64, 1, 0]))
	check("it is not shown: %s %s" % [node.scale, node.z_index], node.scale == Vector2(30, 40) and node.z_index == 1)
	check("a text takes fields", not sync_.write("npc.2", "name", {"aim": 1}))
	node.free()
	change(s, 0, s._codec.join(s.components[0], {"aim": Vector2(2, 2), "shots": 4}), 200400.0) # does no harm


# A window that takes everything.
class Sent:
	var list = []

	func send(bytes):
		list.append(bytes)
		return true


# Not more commands are without an answer than edges take, and ids begin again with 1.
func commands():
	var c = Commands.new()
	var sent = Sent.new()
	var s = state("npc.4", [["uint8", 1, "on"]])
	c._last = 0xfffe
	for i in range(40):
		check("command %d is refused" % i, c.add(i, s, "use", PoolByteArray()))
	c.advance(sent)
	check("it does not begin with the hello", sent.list.size() == 1 and sent.list[0].size() == 16)
	check("the hello is not answered", c.incoming(PoolByteArray([0xc5, 0x81, 0, 0, 0])) == null)
	c.advance(sent)
	check("%d commands are sent" % (sent.list.size() - 1), sent.list.size() == 17)
	check("the ids are wrong", sent.list[1][2] == 255 and sent.list[1][3] == 255 and sent.list[2][2] == 1 and sent.list[2][3] == 0)
	c.incoming(PoolByteArray([0xc5, 0x81, 2, 0, 11, 65])) # of the third
	c.incoming(PoolByteArray([0xc5, 0x81, 2, 0, 0])) # again
	c.incoming(PoolByteArray([0xc5, 0x81, 77, 0, 0])) # of none
	check("the answers are %s" % [c.answers], c.answers.size() == 1 and c.answers[0][0] == 2 and c.answers[0][1] == "failed" and c.answers[0][2] == PoolByteArray([65]))
	c.advance(sent)
	check("the next one is not sent", sent.list.size() == 18)
	for i in range(3, 100): # all but the first two
		c.incoming(PoolByteArray([0xc5, 0x81, i, 0, 0]))
		c.advance(sent)
	check("%d answers" % c.answers.size(), c.answers.size() == 38)
	for i in range(30):
		c.add(100 + i, s, "use", PoolByteArray())
	c.answers = []
	c.advance(sent)
	for i in range(3, 200):
		c.incoming(PoolByteArray([0xc5, 0x81, i, 0, 0]))
		c.advance(sent)
	check("the latest id is %d" % c._last, c._last == 62) # 63 after the first one, since 0 is none
	c.end()
	check("not all are answered", c.answers.size() == 32 and c.answers[-1][1] == "ended")
	for bytes in [[], [0xc5], [0xc5, 2], [0xc5, 0x81], [0xc5, 0x81, 1, 0], [7, 1]]:
		c.incoming(PoolByteArray(bytes)) # does no harm
	check("a message is changed", c.incoming(PoolByteArray([0xc5, 2, 0xc5, 7])) == PoolByteArray([0xc5, 7]) and c.outgoing(PoolByteArray([0xc5, 7])) == PoolByteArray([0xc5, 2, 0xc5, 7]))

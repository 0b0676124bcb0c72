# What the addon costs: microseconds per value by type, and milliseconds per frame for STATES (1,000) states that
# change HZ (5) times a second at 60 frames a second, received and moved. On Linux it counts processor time of its
# thread, so that other programs do not matter much.
extends SceneTree

const Client = preload("../addons/dnp/client.gd")
const Connection = preload("../addons/dnp/connection.gd")
const State = preload("../addons/dnp/state.gd")
const Sync = preload("../addons/dnp/sync.gd")
const Value = preload("../addons/dnp/value.gd")

const FRAME = 1.0 / 60
const FRAMES = 180


func _initialize():
	for name in ["vector3f32", "float32", "uint8", "float16", "vector3f16", "quaternionf16", "quaternionf32", "vector3f64", "point3s32"]:
		print("%-14s %5.2f us per value" % [name, per_value(Value.type_named(name))])
	var states = int(setting("STATES", "1000"))
	var hz = int(setting("HZ", "5"))
	for name in ["vector3f32", "vector3f16"]:
		frames(name, states, hz)
	quit()


# Microseconds of processor time, or of time where the system does not tell.
func spent_usec():
	OS.delay_msec(2) # the system adds up what a thread has used when the thread waits
	var file = File.new()
	if file.open("/proc/thread-self/schedstat", File.READ) != OK:
		return OS.get_ticks_usec()
	return int(file.get_line().split(" ")[0]) / 1000


# The LinkUpdates for values of these links, as an edge packs them.
func packed(ids, type, value):
	var out = []
	var p = StreamPeerBuffer.new()
	var n = 0
	for id in ids:
		if n == 0:
			p = StreamPeerBuffer.new()
			p.put_u8(9)
			p.put_u8(0)
		p.put_u16(id)
		p.put_u8(1)
		p.put_u16(0)
		Value.write_value(p, type, value)
		n += 1
		if p.get_size() > 1150 or n == 127 or id == ids[-1]:
			var b = p.data_array
			b[1] = n
			out.append(b)
			n = 0
	return out


func connection(ids, type):
	var c = Connection.new()
	c.phase = "established"
	for id in ids:
		var s = State.new()
		s.key = "k%d" % id
		s.link = id
		s.types = [type]
		s.names = ["pos"]
		s.values = [Value.zero(type)]
		c._bind(s)
		c._up(s)
	return c


func moved(type, n):
	return Value.new().settle(type, n if Value.LAYOUT[type][0] == 1 else [n, 2, 3, 4].slice(0, Value.LAYOUT[type][0] - 1))


func per_value(type):
	var ids = range(50)
	var c = connection(ids, type)
	var rounds = 200
	var datagrams = []
	for i in range(2):
		datagrams.append(packed(ids, type, moved(type, i + 1)))
	var t = spent_usec()
	for i in range(rounds):
		for p in datagrams[i % 2]:
			c.receive(0, p)
		c.events.clear()
	return (spent_usec() - t) / float(rounds * ids.size())


func frames(name, states, hz):
	var type = Value.type_named(name)
	var ids = range(states)
	var sync_ = Sync.new()
	sync_.bind = {"pos": "translation"}
	sync_.spawn = {"k*": null}
	get_root().add_child(sync_)
	if not sync_.client.is_connected("linked", sync_, "_on_linked"):
		sync_._ready()
	var c = connection(ids, type)
	sync_.client._connection = c
	for id in ids:
		var node = Spatial.new()
		sync_.add_child(node)
		sync_.nodes["k%d" % id] = node
		sync_._on_linked(c.states[id])
	var turn = 0
	var due = 0.0
	var rounds = []
	for f in range(FRAMES):
		due += states * hz * FRAME
		var group = []
		while due >= 1:
			due -= 1
			group.append(ids[turn % states])
			turn += 1
		rounds.append(packed(group, type, moved(type, f + 1)))
	run_frames(sync_, c, rounds) # the pace of the states is known after it
	var idle = run_frames(null, null, rounds)
	var spent = run_frames(sync_, c, rounds) - idle
	print("%d states x %d Hz, %s: %.2f ms per frame; %d values in motion" % [states, hz, name, spent / 1000.0 / FRAMES, sync_._linear.size()])
	sync_.client._connection = null
	sync_.free()


# Plays frames, and returns the processor time of all.
func run_frames(sync_, c, rounds):
	var before = spent_usec()
	var start = OS.get_ticks_usec()
	for f in range(rounds.size()):
		while OS.get_ticks_usec() - start < f * FRAME * 1000000: # the frames of a game
			OS.delay_usec(500)
		if c == null:
			continue
		for p in rounds[f]:
			c.receive(OS.get_ticks_msec(), p)
		sync_.client._handle()
		sync_._move(OS.get_ticks_usec() / 1000.0)
	return spent_usec() - before


func setting(name, default):
	return OS.get_environment(name) if OS.has_environment(name) else default

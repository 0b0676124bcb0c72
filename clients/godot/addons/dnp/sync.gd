# A node that shows the states of an edge as scenes: it spawns a scene for each state whose key begins as `spawn`
# says, moves its properties as the values move, and frees it when the state is gone.
#
#	var sync_ = preload("res://addons/dnp/sync.gd").new()
#	sync_.spawn = {"npc.*": "res://npc.tscn"}
#	sync_.bind = {"pos": "translation"} # 4: sync_.bind = {"pos": "position"}
#	add_child(sync_)
#	sync_.open("udp://127.0.0.1:3413")
#
# Values are bound by name. A value without an entry in `bind` goes to the property of its own name, if the node has
# one; a field of data has the name of the value, a dot and its own, as in "gun.aim", and needs an entry. Where the edge
# does not tell names (describing link messages), `names` says them by key. Floats, vectors and
# quaternions move evenly from one value to the next, a moment late: as long as values usually are apart, and some
# more where that varies.
extends Node

class_name DnpSync

signal spawned(node, state)
signal freed(node, state) # before the node is freed

const Client = preload("client.gd")
const Value = preload("value.gd")

# Milliseconds.
const DELAY_FIRST = 100.0 # until the pace of a state is known
const DELAY_MOST = 500.0
const JITTERS = 4.0 # the deviations that the delay covers
const SLEW = 0.1 # how much of the time between two values a delay may change
const WAITING = 16 # values that wait to be shown

# What an entry of a bound value consists of. It moves from V0 to V1 in the time from T0 to T1.
const NODE = 0
const PROPERTY = 1
const PLAIN = 2 # the name of the property, or null if it is a part of one ("modulate:a")
const KIND = 3 # the type of the property
const T0 = 4
const T1 = 5
const RATE = 6 # 1 / (T1 - T0)
const V0 = 7
const V1 = 8
const NEXT = 9 # the times and values that follow, in turn
const MOVES = 10 # it is in _linear or _other
const PACE = 11 # of its state

# What the pace of a state consists of.
const INTERVAL = 0
const DEVIATION = 1
const ARRIVED = 2 # when the latest value came
const DELAY = 3 # from the arrival of a value to the time when it is shown

export var url = "" # opened when the node is ready; empty: call `open`
export var token = ""
export var spawn = {} # patterns of keys ("npc.*", "lamp") to scenes: paths, PackedScenes, Scripts or classes of nodes
export var bind = {} # names of values to properties
export var names = {} # patterns of keys to Arrays of names of values, for states that are not described
export var smooth = true # false: show each value when it comes
export var plane = "xy" # which components of three a property with two gets
export var scale_by = 1.0 # what components of vectors are multiplied with

var into = self # the node that gets the spawned ones
var client = Client.new()
var nodes = {} # by key

var _bound = {} # by state: {index: entry}, and for fields of data {"index.name": entry}
var _linear = [] # entries that move, of types that have linear_interpolate
var _other = []


func _ready():
	client.connect("linked", self, "_on_linked")
	client.connect("unlinked", self, "_on_unlinked")
	client.connect("changed", self, "_on_changed")
	if url != "":
		open(url, {"token": token})


func _exit_tree():
	client.close()


# Connects to an edge; options are those of the client.
func open(address, options = {}):
	client.open(address, options)


# Changes a value of a read-write state by key and name. False if there is no such state or value, or it is read-only.
func write(key, name, value):
	var state = client.states.get(key)
	if state == null or not state.write(name, value):
		return false
	var entries = _bound.get(state, {})
	var i = state.index(name)
	_show_written(entries.get(i), state.value(i))
	if state.components.has(i):
		var parts = state.fields(i)
		for field in parts if parts != null else {}:
			_show_written(entries.get(_part(i, field)), parts[field])
	return true


func _show_written(entry, v):
	if entry == null or not is_instance_valid(entry[NODE]):
		return
	entry[NEXT].clear() # nothing that came before counts
	entry[T1] = 0.0
	entry[V1] = _fit(entry[KIND], v)
	_show(entry, entry[V1])


# Returns the newest value of a state by key and name; null if there is none.
func value(key, name):
	var state = client.states.get(key)
	return state.value(name) if state != null else null


# Returns the fields of a data value by key and name; null if there is none, or it has none.
func fields(key, name):
	var state = client.states.get(key)
	return state.fields(name) if state != null else null


# Shows values of a state with a node that is there already. Spawned nodes are shown by themselves.
func attach(key, node):
	nodes[key] = node
	if client.states.has(key):
		_bind_state(client.states[key], node)


func _process(_delta):
	client.poll()
	_move(OS.get_ticks_usec() / 1000.0)


# ---- states

static func _match(patterns, key):
	var best = null
	for p in patterns:
		if key.match(p) and (best == null or p.length() > best.length()):
			best = p
	return null if best == null else patterns[best]


func _on_linked(state):
	if state.own:
		return
	if state.names.empty():
		var known = _match(names, state.key)
		if known != null:
			state.names = known.duplicate()
	var node = nodes.get(state.key)
	if node == null or not is_instance_valid(node):
		node = _spawn(_match(spawn, state.key))
		if node == null:
			return
		node.name = state.key.replace(".", "_")
		nodes[state.key] = node
		node.set_meta("dnp_spawned", true)
		_bind_state(state, node)
		into.add_child(node)
		emit_signal("spawned", node, state)
	else:
		_bind_state(state, node)


func _spawn(what):
	if typeof(what) == TYPE_STRING:
		what = load(what)
	if what is PackedScene:
		return what.instance()
	return what.new() if what != null else null


func _on_unlinked(state):
	_unbind(state)
	var node = nodes.get(state.key)
	if not is_instance_valid(node):
		nodes.erase(state.key)
	elif node.has_meta("dnp_spawned"):
		nodes.erase(state.key)
		emit_signal("freed", node, state)
		node.queue_free()


func _unbind(state):
	if _bound.has(state):
		for i in _bound[state]:
			_bound[state][i][MOVES] = false
			_bound[state][i][T1] = 0.0 # the next frame forgets it
		_bound.erase(state)


func _bind_state(state, node):
	_unbind(state)
	var properties = {}
	for p in node.get_property_list():
		properties[p.name] = p.type
	var pace = [0.0, 0.0, -1.0, DELAY_FIRST]
	var entries = {}
	for i in range(state.size()):
		var name = state.names[i] if i < state.names.size() and state.names[i] != "" else str(i)
		_bind_value(entries, i, node, properties, bind.get(name, name), pace, state.values[i])
		if not state.components.has(i):
			continue
		var parts = state.fields(i) # null: the game server wrote data of another size, and may write others
		for field in state.components[i]:
			var property = bind.get("%s.%s" % [name, field[0]], "")
			_bind_value(entries, _part(i, field[0]), node, properties, property, pace, parts[field[0]] if parts != null else null)
	_bound[state] = entries


static func _part(i, field):
	return "%d.%s" % [i, field]


func _bind_value(entries, id, node, properties, property, pace, v):
	var root = property.split(":")[0]
	if not properties.has(root):
		return
	var kind = typeof(node.get_indexed(NodePath(property)))
	entries[id] = [node, NodePath(property), property if root == property else null, kind, 0.0, 0.0, 0.0, null, null, [], false, pace]
	if v != null:
		_show(entries[id], _fit(kind, v))


# ---- values

func _on_changed(state, i):
	_changed(state, i, OS.get_ticks_usec() / 1000.0)


func _changed(state, i, now):
	if not _bound.has(state):
		return
	var entries = _bound[state]
	if entries.has(i):
		_aim(state, entries[i], state.types[i], state.values[i], now)
	if not state.components.empty() and state.components.has(i):
		var parts = state.fields(i)
		for field in state.components[i] if parts != null else []:
			var part = _part(i, field[0])
			if entries.has(part):
				_aim(state, entries[part], field[1], parts[field[0]], now)


# Has a property move to a value that came.
func _aim(state, e, type, value, now):
	if not is_instance_valid(e[NODE]):
		_unbind(state)
		return
	var v = _fit(e[KIND], value)
	if not smooth or not Value.is_float(type):
		_show(e, v)
		return
	var pace = e[PACE]
	_arrive(pace, now)
	var at = now + pace[DELAY]
	if e[MOVES]:
		var next = e[NEXT]
		if next.size() >= 2 * WAITING:
			next.pop_front()
			next.pop_front()
		next.append(at)
		next.append(v)
		return
	e[V0] = e[NODE].get_indexed(e[PROPERTY])
	e[V1] = v
	e[T0] = max(now, at - (pace[INTERVAL] if pace[INTERVAL] > 0 else DELAY_FIRST))
	e[T1] = at
	e[RATE] = 1.0 / max(1.0, at - e[T0])
	e[MOVES] = true
	if e[KIND] == TYPE_VECTOR3 or e[KIND] == TYPE_VECTOR2 or e[KIND] == TYPE_COLOR:
		_linear.append(e)
	else:
		_other.append(e)


# Notes that a value of a state came. The pace is estimated as in RFC 6298; the delay covers the usual time between
# two values, and how much that varies.
static func _arrive(pace, now):
	var gap = now - pace[ARRIVED]
	if pace[ARRIVED] < 0 or gap > DELAY_MOST:
		pace[ARRIVED] = now
		return
	if gap < 1.0: # another value of the same datagram
		return
	pace[ARRIVED] = now
	if pace[INTERVAL] == 0:
		pace[INTERVAL] = gap
		pace[DEVIATION] = gap / 4
	else:
		pace[DEVIATION] += (abs(gap - pace[INTERVAL]) - pace[DEVIATION]) / 8
		pace[INTERVAL] += (gap - pace[INTERVAL]) / 8
	var wanted = min(DELAY_MOST, pace[INTERVAL] + JITTERS * pace[DEVIATION])
	pace[DELAY] += clamp(wanted - pace[DELAY], -SLEW * gap, SLEW * gap)


# Takes the next value as the aim when the last one is reached. False if there is none, so that the value rests.
static func _turn(e, now):
	var next = e[NEXT]
	while now >= e[T1] and not next.empty():
		e[T0] = e[T1]
		e[V0] = e[V1]
		e[T1] = max(next.pop_front(), e[T0] + 1.0)
		e[V1] = next.pop_front()
		e[RATE] = 1.0 / (e[T1] - e[T0])
	return now < e[T1]


func _move(now):
	var resting = false
	for e in _linear: # the most frequent types, and nothing that could wait
		if now >= e[T1] and not _goes_on(e, now):
			resting = true
			continue
		if now >= e[T0]:
			var node = e[NODE]
			if is_instance_valid(node):
				var v = e[V0].linear_interpolate(e[V1], (now - e[T0]) * e[RATE])
				if e[PLAIN] != null:
					node.set(e[PLAIN], v)
				else:
					node.set_indexed(e[PROPERTY], v)
			else:
				e[MOVES] = false
				resting = true
	for e in _other:
		if now >= e[T1] and not _goes_on(e, now):
			resting = true
		elif now >= e[T0] and is_instance_valid(e[NODE]):
			e[NODE].set_indexed(e[PROPERTY], _mix(e[KIND], e[V0], e[V1], (now - e[T0]) * e[RATE]))
	if resting:
		_linear = _still_moving(_linear)
		_other = _still_moving(_other)


# Goes on to the next value, or shows the last one. False if the entry rests.
func _goes_on(e, now):
	if e[MOVES] and _turn(e, now):
		return true
	if e[MOVES] and is_instance_valid(e[NODE]):
		e[NODE].set_indexed(e[PROPERTY], e[V1])
	e[MOVES] = false
	return false


static func _still_moving(list):
	var moving = []
	for e in list:
		if e[MOVES]:
			moving.append(e)
	return moving


static func _mix(kind, a, b, part):
	match kind:
		TYPE_QUAT: return a.slerp(b, part)
		TYPE_REAL: return lerp(a, b, part)
		TYPE_INT: return int(round(lerp(a, b, part)))
	return b


func _show(e, v):
	if v != null:
		e[NODE].set_indexed(e[PROPERTY], v)


# Returns a value in the form that a property of a kind has.
func _fit(kind, v):
	if typeof(v) == kind and scale_by == 1.0:
		return v
	match kind:
		TYPE_BOOL: return bool(v)
		TYPE_INT: return int(v)
		TYPE_REAL: return float(v)
		TYPE_STRING: return str(v)
	var c = Value.components(v)
	match kind:
		TYPE_VECTOR2:
			if c.size() == 2:
				return Vector2(c[0], c[1]) * scale_by
			if c.size() == 3:
				return Vector2(c["xyz".find(plane[0])], c["xyz".find(plane[1])]) * scale_by
		TYPE_VECTOR3:
			if c.size() == 3:
				return Vector3(c[0], c[1], c[2]) * scale_by
			if c.size() == 2:
				return Vector3(c[0], c[1], 0) * scale_by
		TYPE_QUAT:
			if c.size() == 4:
				return Quat(c[0], c[1], c[2], c[3]).normalized()
		TYPE_COLOR:
			if c.size() >= 3:
				return Color(c[0], c[1], c[2], c[3] if c.size() > 3 else 1.0)
	return v

# Returns to the game what it sent: a state "all" comes back as values of the state "back", and as a state of this
# client. With VECTORS=file it reads the datagrams of the denetwork libraries instead. In Godot 4, whose web builds have
# no environment, EDGE and VECTORS are files.
extends SceneTree

const Client = preload("../addons/dnp/client.gd")
const Connection = preload("../addons/dnp/connection.gd")
const State = preload("../addons/dnp/state.gd")
const Value = preload("../addons/dnp/value.gd")

var dnp = Client.new()
var offered = false


func _initialize():
	if OS.has_environment("VECTORS"): # 4: if FileAccess.file_exists("res://VECTORS"):
		vectors(OS.get_environment("VECTORS")) # 4: vectors(FileAccess.get_file_as_string("res://VECTORS"))
		quit()
		return
	dnp.open(OS.get_environment("EDGE")) # 4: dnp.open(FileAccess.get_file_as_string("res://EDGE"))


func _idle(_delta):
	dnp.poll()
	OS.delay_msec(1)
	if offered or not dnp.states.has("all") or not dnp.states.has("back"):
		return
	offered = true
	var all = dnp.states["all"]
	var back = dnp.states["back"]
	var own = []
	for i in range(all.size()):
		if not back.write(all.names[i], all.value(i)):
			print("value ", all.names[i], " cannot be written")
		own.append([Value.NAMES[all.types[i]], all.value(i)])
	if dnp.offer("mine", own) == null:
		print("the state cannot be offered")


# ---- vectors

func vectors(path):
	var file = File.new() # 4: var text = path
	file.open(path, File.READ) # 4: var json = JSON.new()
	var cases = JSON.parse(file.get_as_text()).result["vectors"] # 4: var cases = json.data["vectors"] if json.parse(text) == OK else []
	var read = 0
	for c in cases:
		for hex in c["packets"]:
			if c.get("group") == "value" and not c.get("broken", false) or c.get("group") == "half":
				read += vector(c, unhex(hex))
			else:
				Connection.new().receive(0, unhex(hex)) # does no harm
	print("values: ", read)


func unhex(text):
	var p = PoolByteArray()
	for i in range(0, text.length(), 2):
		p.append(("0x" + text.substr(i, 2)).hex_to_int())
	return p


# Reads the value of a datagram, and writes the same bytes again. Returns how many values it has read.
func vector(c, p):
	var codec = Connection.new()
	var type = 8 if c["group"] == "half" else int(c["type_code"])
	var at = 0 if c["group"] == "half" else 7
	if c.get("kind") == "link_state":
		var offer = codec._parse_offer(p)
		if offer == null or offer[3] != [type]:
			print(c["lib"], " ", c["name"], ": the offer does not parse")
			return 0
		at = 8 + offer[2].size() + 3
	codec._in.data_array = p
	codec._in.seek(at)
	var value = codec.read_value(type)
	var out = StreamPeerBuffer.new()
	Value.write_value(out, type, value)
	var want = Connection.cut(p, at, p.size())
	var nan = typeof(value) == TYPE_REAL and is_nan(value) # has many forms
	if out.data_array != want and not nan:
		print(c["lib"], " ", c["name"], ": ", out.data_array.hex_encode(), ", want ", want.hex_encode(), " for ", value)
	return 1

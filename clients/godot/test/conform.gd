# The program of clients/CONFORMANCE.md: it obeys messages of the edge. EDGE=host:port, TOKEN.
extends SceneTree

const Client = preload("../addons/dnp/client.gd")
const Value = preload("../addons/dnp/value.gd")

var dnp = Client.new()
var opened = false


func _initialize():
	OS.low_processor_usage_mode_sleep_usec = 500 # between polls; without a screen the engine sleeps 6.9 ms, and the edge asks for 65,000 acknowledgements
	dnp.connect("message", self, "_on_message")
	dnp.connect("closed", self, "_on_closed")
	dnp.open("udp://" + OS.get_environment("EDGE"), {"token": OS.get_environment("TOKEN"), "reconnect": false}) # 4: dnp.open(FileAccess.get_file_as_string("res://EDGE"), {"reconnect": false})


func _idle(_delta):
	dnp.poll()


func _on_closed(reason, _detail, _retry_in):
	print("closed: ", reason)
	quit()


func _on_message(bytes, _reliable):
	var text = bytes.get_string_from_utf8()
	var space = text.find(" ")
	var word = text if space < 0 else text.substr(0, space)
	var rest = "" if space < 0 else text.substr(space + 1)
	match word:
		"echo": dnp.send(rest)
		"once": dnp.send_unreliable(rest)
		"count": dnp.send("count %d" % bytes.size())
		"long":
			var p = PoolByteArray()
			for i in range(int(rest)):
				p.append(i % 251)
			dnp.send(p)
		"burst":
			for i in range(int(rest)):
				dnp.send("burst %d" % i)
		"set":
			var args = rest.split(" ")
			find(args[0]).write(int(args[1]), int(args[2]))
		"tell": dnp.send(rest + " " + tell(find(rest)))
		"names": dnp.send(rest + " " + names(find(rest)))
		"offer": dnp.offer(rest, [["uint16", 7, "hp"], ["string", "Ada"]])
		"withdraw": dnp.withdraw(find(rest))
		"close": dnp.close()


func find(key):
	if dnp.states.has(key):
		return dnp.states[key]
	for s in dnp._own:
		if s.key == key and s.link >= 0 and dnp._connection._offered.has(s.link):
			return s
	return null


func names(state):
	return "null" if state == null or state.names.empty() else to_json(state.names)


func tell(state):
	if state == null:
		return "null"
	var list = []
	for i in range(state.size()):
		var v = state.value(i)
		var type = state.types[i]
		if type == Value.DATA:
			list.append('"%s"' % v.hex_encode())
		elif type == Value.STRING:
			list.append(to_json(v))
		elif Value.LAYOUT[type][0] == 1:
			list.append(number(type, v))
		else:
			var parts = []
			for c in Value.components(v):
				parts.append(number(type, c))
			list.append("[" + PoolStringArray(parts).join(",") + "]") # 4: list.append("[" + ",".join(PackedStringArray(parts)) + "]")
	return "[" + PoolStringArray(list).join(",") + "]" # 4: return "[" + ",".join(PackedStringArray(list)) + "]"


func number(type, v):
	if Value.is_float(type):
		return "%f" % v
	if Value.LAYOUT[type][1] == 8 and Value.LAYOUT[type][2] == Value.UINT and v < 0:
		return '"%s"' % unsigned(v)
	return '"%d"' % int(v)


# The digits of an int as one of 64 bits without a sign.
func unsigned(v):
	var half = (v >> 1) & 0x7fffffffffffffff
	var tenth = half / 5
	return str(tenth) + str(v - tenth * 10)

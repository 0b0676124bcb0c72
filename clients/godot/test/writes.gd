# Plays the transcripts of clients/testdata/writes.txt, WRITES, and random writes over bad paths against a dumb model of an
# edge and a game. It says what is WRONG.
extends SceneTree

const Connection = preload("../addons/dnp/connection.gd")
const State = preload("../addons/dnp/state.gd")

const LAMP = "05 0100 0080 00 0400 6c616d70 0200 01 01 01 02"
const GRANTED = "04 0000 c5 81 0000 00 03000000"

var title = ""
var dnp
var now = 0
var states = {}
var sent = []
var reliable = []
var changed = []
var done = []


func _initialize():
	var file = File.new() # 4: var text = FileAccess.get_file_as_string("res://WRITES")
	file.open(OS.get_environment("WRITES"), File.READ) # 4: var plays = 0
	var text = file.get_as_text() # 4: pass
	var transcripts = 0
	for line in text.split("\n"):
		if line.begins_with("== "):
			title = line
			transcripts += 1
			begin()
		elif line != "" and not line.begins_with("#"):
			play(line)
	begin()
	for path in [[0, 0, 0.0], [30, 20, 0.05], [30, 20, 0.3], [100, 60, 0.0], [100, 60, 0.3]]:
		for seed_ in range(1, 4):
			random_writes(path, seed_)
	print("transcripts: ", transcripts)
	quit()


func begin():
	if dnp != null:
		dnp.close()
	dnp = null
	now = 0
	states = {}
	for list in [sent, reliable, changed, done]:
		list.clear()


func unhex(text):
	var p = PoolByteArray()
	text = text.replace(" ", "")
	for i in range(0, text.length(), 2):
		p.append(("0x" + text.substr(i, 2)).hex_to_int())
	return p


# Goes to a time, and does what is due before.
func at(time):
	while now < time:
		now += 1
		if dnp != null:
			dnp.advance(now)
			take()


func take():
	for p in dnp.out:
		if p[0] == 9:
			sent.append(p.hex_encode())
		elif p[0] == 4:
			reliable.append(p.hex_encode())
	dnp.out = []
	for e in dnp.events:
		match e[0]:
			Connection.CHANGED: changed.append("%s %d %s" % [e[1].key, e[2], e[1].values[e[2]]])
			Connection.WRITTEN: done.append("%s %d %s" % [e[1].key, e[2], e[3] if e[3] != "" else "ok"])
			Connection.LINKED: states[e[1].key] = e[1]
			Connection.MESSAGE: print("WRONG: ", title, ": a message ", e[1].hex_encode())
	dnp.events = []


func play(line):
	var words = line.split(" ")
	var verb = words[1]
	var args = Array(words).slice(2, words.size() - 1) if words.size() > 2 else [] # 4: var args = Array(words).slice(2)
	var rest = PoolStringArray(args).join(" ") # 4: var rest = " ".join(PackedStringArray(args))
	at(int(words[0]))
	match verb:
		"connect", "play":
			dnp = Connection.new()
			dnp.begin(PoolByteArray(), "plain" in args, "ordered" in args)
			dnp.advance(now)
			dnp.receive(now, unhex("01 00 0000"))
			if verb == "play":
				for p in ["06 0000 00", GRANTED, LAMP]:
					dnp.receive(now, unhex(p))
		"recv": dnp.receive(now, unhex(rest))
		"set":
			for i in range(0, args.size(), 3):
				states[args[i]].write(int(args[i + 1]), int(args[i + 2]))
		"churn":
			for i in range(int(args[2])):
				at(int(words[0]) + 30 * i)
				states[args[0]].write(int(args[1]), i + 2)
				dnp.advance(now)
				take()
			sent.clear()
		"offer":
			var state = State.new()
			state.key = args[0]
			state.message = args[0].to_utf8()
			state.own = true
			state.writable = true
			state.types = [1]
			state.values = [int(args[1])]
			states[args[0]] = state
			dnp.offer(state)
		"withdraw": dnp.withdraw(states[rest])
		"resume": dnp.resume(now, rest == "ordered")
		"close": dnp.close()
		_:
			check(verb, rest, line)
			return
	dnp.advance(now)
	take()


func check(verb, want, line):
	var got = ""
	match verb:
		"sent":
			got = PoolStringArray(sent).join(",") # 4: got = ",".join(PackedStringArray(sent))
			want = want.replace(" ", "")
			sent.clear()
		"reliable":
			got = reliable[0] if not reliable.empty() else ""
			want = want.replace(" ", "")
		"changed":
			got = PoolStringArray(changed).join(" ") # 4: got = " ".join(PackedStringArray(changed))
			changed.clear()
		"done":
			got = PoolStringArray(done).join(" ") # 4: got = " ".join(PackedStringArray(done))
			done.clear()
		"value":
			var words = want.split(" ")
			got = str(states[words[0]].values[int(words[1])])
			want = words[2]
		_: got = "no verb"
	if got != want:
		print("WRONG: ", title, ": ", line, ", got ", got)


# ---- random writes
# Each value that anybody sets is another number, so that the order of what is shown can be compared with the order of what was
# true. The edge sends what becomes true once, and again after each acknowledgement where it differs; the rest at the end.

const VALUES = 3

var path = []
var dice = RandomNumberGenerator.new()
var wire = [] # [time, to the client, datagram]
var later = [] # [time, values, number, refused]: what the edge says when the relay has a write
var truth = []
var shown = []
var newest = [] # by value: the number of the latest write
var applied = {}
var results = {} # by value: how its last write ended
var generation = 1
var counter = 0
var lossless = false


func random_writes(on_path, seed_):
	path = on_path
	title = "SEED=%d, path %s" % [seed_, path]
	dice.seed = seed_
	begin()
	wire = []
	later = []
	truth = []
	shown = [0, 0, 0]
	newest = [0, 0, 0]
	applied = {}
	results = {}
	generation = 1
	counter = 0
	lossless = false
	for i in range(VALUES):
		truth.append([i + 1])
	dnp = Connection.new()
	dnp.begin(PoolByteArray())
	dnp.advance(0)
	for p in ["01 00 0000", "06 0000 00", GRANTED, "05 0100 0080 00 0100 61 0300 05 01000000 05 02000000 05 03000000"]:
		dnp.receive(0, unhex(p))
	var last = [0, 0, 0]
	var value = 100
	run(100)
	for _step in range(40):
		var i = dice.randi() % VALUES
		var what = dice.randf()
		value += 1
		if what < 0.5:
			shown[i] = -1 # its own, until it is acknowledged
			last[i] = value
			states["a"].write(i, value)
		elif what < 0.75:
			become(i, value)
		elif what < 0.78:
			generation += 1
			counter = 0
			dnp.resume(now)
		if dice.randf() < 0.7:
			run(dice.randi() % 150)
	lossless = true # the rest arrives
	run(6000)
	say([0, 1, 2], PoolByteArray())
	run(1000)
	for i in range(VALUES):
		if states["a"].values[i] != truth[i].back():
			print("WRONG: ", title, ": value ", i, " is ", states["a"].values[i], ", want ", truth[i].back())
		var want = "bounds" if last[i] % 7 == 0 else ""
		if last[i] > 0 and (results.get(i) != want or (last[i] in truth[i]) != (want == "")):
			print("WRONG: ", title, ": the last write of value ", i, " ended with ", results.get(i), ", want ", want)
	begin()


func become(i, value):
	truth[i].append(value)
	say([i], PoolByteArray())


func uvarint(n):
	var p = PoolByteArray()
	while n > 127:
		p.append((n & 127) | 128)
		n >>= 7
	p.append(n)
	return p


# Sends what is true, and acknowledgements.
func say(indexes, acks):
	var p = StreamPeerBuffer.new()
	p.put_u8(9)
	p.put_u8(1)
	p.put_u16(0x8000)
	p.put_u8(indexes.size())
	for i in indexes:
		p.put_u16(i)
		p.put_u32(truth[i].back())
	counter += 1
	var trailer = uvarint(generation) + uvarint(counter) + acks
	carry(true, p.data_array + trailer + PoolByteArray([trailer.size()]))


func carry(to_client, p):
	for n in range(2 if dice.randf() < 0.05 else 1): # some come again, much later
		if lossless or dice.randf() >= path[2]:
			wire.append([now + path[0] + dice.randf() * path[1] + n * dice.randf() * 5000, to_client, p])


func run(ms):
	var end = now + ms
	while now < end:
		now += 5
		for m in due(later):
			acknowledge(m)
		for m in due(wire):
			if m[1]:
				dnp.receive(now, m[2])
				look()
			else:
				hear(m[2])
		dnp.advance(now)
		look()


# Takes what is due out of a list.
func due(list):
	var all = []
	for k in range(list.size() - 1, -1, -1):
		if list[k][0] <= now:
			all.push_front(list[k])
			list.remove(k) # 4: list.remove_at(k)
	return all


func look():
	for p in dnp.out:
		carry(false, p)
	dnp.out = []
	for e in dnp.events:
		match e[0]:
			Connection.LINKED: states["a"] = e[1]
			Connection.CLOSED: print("WRONG: ", title, ": closed ", e[1])
			Connection.WRITTEN:
				results[e[2]] = e[3]
				if e[3] == "":
					shown[e[2]] = max(shown[e[2]], truth[e[2]].find(e[1].values[e[2]]))
			Connection.CHANGED:
				var place = truth[e[2]].find(e[1].values[e[2]])
				if place < shown[e[2]] or place < 0:
					print("WRONG: ", title, ": value ", e[2], " goes back to ", e[1].values[e[2]])
				shown[e[2]] = place
	dnp.events = []


# The edge and the relay: a number is applied once.
func hear(p):
	if p[0] == 4 or p[0] == 10:
		carry(true, PoolByteArray([6, p[1], p[2], 0]))
	if p[0] != 9:
		return
	var at = 5 # one link
	var written = []
	for _v in range(p[4]):
		written.append([p[at], p[at + 2] + 256 * p[at + 3]])
		at += 6
	var number = 0
	for k in range(at, p.size()):
		number |= (p[k] & 127) << (7 * (k - at))
	for w in written:
		if w[1] % 7 == 0 or number <= newest[w[0]]:
			continue
		if applied.has([number, w[0]]):
			print("WRONG: ", title, ": number ", number, " is applied twice")
		applied[[number, w[0]]] = true
		newest[w[0]] = number
		become(w[0], w[1])
		if dice.randf() < 0.3:
			become(w[0], 100000 + w[1]) # the game corrects it
	later.append([now + dice.randf() * 40, number, written])


func acknowledge(m):
	var refused = PoolByteArray()
	var differ = []
	for w in m[2]:
		if w[1] % 7 == 0:
			refused.append_array(PoolByteArray([0, 0x80, w[0], 0, 2]))
		if truth[w[0]].back() != w[1]:
			differ.append(w[0])
	say(differ, uvarint(m[1]) + PoolByteArray([refused.size() / 5]) + refused)

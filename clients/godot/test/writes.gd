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

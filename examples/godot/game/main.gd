# The states of `relay dev` as sprites: what moves is a disc or an arrow, a click switches the lamp, and a line of text
# goes to all players. URL is the edge. Tests set REPORT=1 to have positions printed, and SCREENSHOT=file.png.
extends Node2D

const Sync = preload("res://addons/dnp/sync.gd")
const Thing = preload("res://thing.gd")
const UNIT = 45.0 # pixels
const LINES = 6

var sync_ = Sync.new()
var report = 0.0
var age = 0.0


func _ready():
	sync_.spawn = {"lamp": null, "clock": null, "*": Thing}
	sync_.bind = {"pos": "position", "heading": "rotation"}
	sync_.names = {"lamp": ["on", "colour"], "ball": ["pos"], "platform": ["pos"], "boid.*": ["pos", "heading"], "npc.*": ["pos"]}
	sync_.plane = "xz" # seen from above
	sync_.scale_by = UNIT
	sync_.into = $field
	add_child(sync_)
	sync_.attach("lamp", $lamp)
	sync_.connect("spawned", self, "_on_spawned")
	sync_.client.connect("message", self, "_on_message")
	sync_.client.connect("closed", self, "_on_closed")
	$say.connect("text_entered", self, "_on_said")
	sync_.open(setting("URL", "udp://127.0.0.1:3413"))


func _on_spawned(thing, state):
	thing.arrow = state.key.begins_with("boid.")
	thing.size = 14.0 if state.key == "platform" else 8.0
	thing.colour = Color.from_hsv(hash(state.key) % 100 / 100.0, 0.5, 1)


func _unhandled_input(event):
	if event is InputEventMouseButton and event.pressed:
		sync_.write("lamp", "on", 1 - sync_.value("lamp", "on"))


func _on_said(text):
	$say.clear()
	if text != "":
		sync_.client.send(text)


func _on_message(bytes, _reliable):
	say(bytes.get_string_from_utf8())


func _on_closed(reason, detail, _retry_in):
	say("no connection: %s %s" % [reason, detail])


func say(text):
	var lines = Array($said.text.split("\n", false)) + [text]
	$said.text = PoolStringArray(lines.slice(max(0, lines.size() - LINES), lines.size() - 1)).join("\n")


func _process(delta):
	age += delta
	report += delta
	if OS.has_environment("REPORT") and report > 0.2:
		report = 0.0
		var all = {}
		for key in sync_.nodes:
			var at = sync_.nodes[key].position / UNIT
			all[key] = [stepify(at.x, 0.001), stepify(at.y, 0.001)]
		print("REPORT ", to_json(all), " lamp ", $lamp.on, " said ", $said.text.replace("\n", "|"))
	if OS.has_environment("SCREENSHOT") and age > float(setting("AFTER", "6")):
		var image = get_viewport().get_texture().get_data()
		image.flip_y()
		image.save_png(OS.get_environment("SCREENSHOT"))
		get_tree().quit()


func setting(name, default):
	return OS.get_environment(name) if OS.has_environment(name) else default

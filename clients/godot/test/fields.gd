# Says the fields of the data "gun" of the state "tank", and once writes others. EDGE is a URL.
extends SceneTree

const Client = preload("../addons/dnp/client.gd")

var dnp = Client.new()


func _initialize():
	dnp.connect("linked", self, "_on_linked")
	dnp.connect("changed", self, "_on_changed")
	dnp.open(OS.get_environment("EDGE")) # 4: dnp.open(FileAccess.get_file_as_string("res://EDGE"))


func _idle(_delta):
	dnp.poll()
	OS.delay_msec(1)


func _on_linked(tank):
	say(tank)
	if not tank.write("gun", {"aim": Vector3(0, 0.5, 0), "shots": 8, "on": [1, 2]}):
		print("it cannot be written")
	say(tank)


func _on_changed(tank, _index):
	say(tank)


func say(tank):
	var gun = tank.fields("gun")
	print("fields ", gun["aim"], " ", gun["shots"], " ", gun["on"])

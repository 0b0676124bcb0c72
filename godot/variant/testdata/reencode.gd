# Reads encoded Variants, one a line in hex, from the file that the environment
# names, and prints each as Godot encodes it.
extends SceneTree

func _init():
	var file = File.new()
	file.open(OS.get_environment("VARIANTS"), File.READ)
	while true:
		var line = file.get_line()
		if line == "":
			break
		var bytes = PoolByteArray()
		for i in range(0, line.length(), 2):
			bytes.append(("0x" + line.substr(i, 2)).hex_to_int())
		print("variant ", var2bytes(bytes2var(bytes)).hex_encode())
	quit()

# Reads encoded Variants, one a line in hex, from the file that the environment
# names (in Godot 4: from the file VARIANTS of the pack), and prints each as Godot encodes it.
extends SceneTree

func _initialize():
	var file = File.new() # 4: var file = FileAccess.open("res://VARIANTS", FileAccess.READ)
	file.open(OS.get_environment("VARIANTS"), File.READ) # 4: assert(file != null)
	while true:
		var line = file.get_line()
		if line == "":
			break
		var bytes = PoolByteArray()
		for i in range(0, line.length(), 2):
			bytes.append(("0x" + line.substr(i, 2)).hex_to_int())
		print("variant ", var2bytes(bytes2var(bytes)).hex_encode()) # 4: print("variant ", var_to_bytes(bytes_to_var(bytes)).hex_encode())
	quit()

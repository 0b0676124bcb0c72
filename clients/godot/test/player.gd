# A player for tests: it answers each message "gN" of its game with "cN", and says what goes wrong. EDGE is a URL.
extends SceneTree

const Client = preload("../addons/dnp/client.gd")

var dnp = Client.new()
var next = 0


func _initialize():
	dnp.connect("message", self, "_on_message")
	dnp.connect("opened", self, "_on_opened")
	dnp.connect("closed", self, "_on_closed")
	var options = {}
	if OS.get_environment("CERTIFICATE") != "":
		options["certificate"] = X509Certificate.new()
		options["certificate"].load(OS.get_environment("CERTIFICATE"))
	dnp.open(OS.get_environment("EDGE"), options) # 4: dnp.open(FileAccess.get_file_as_string("res://EDGE"), options)


func _idle(_delta):
	dnp.poll()
	OS.delay_msec(1)


func _on_opened():
	print("opened")


func _on_closed(reason, detail, retry_in):
	print("closed: ", reason, " ", detail, " ", retry_in)


func _on_message(bytes, _reliable):
	var text = bytes.get_string_from_utf8()
	if text != "g%d" % next:
		print("message ", next, " of the game is ", text)
	print("heard ", next)
	next += 1
	dnp.send("c" + text.substr(1))

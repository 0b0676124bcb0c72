# What tests of examples/godot/nats.gd have the engine do: CASE says what.
extends SceneTree

const Nats = preload("../../../examples/godot/nats.gd")

var nats = Nats.new()
var seen = 0


func _init():
	var address = OS.get_environment("NATS").split(":")
	var options = {"user": env("NATS_USER"), "password": env("NATS_PASSWORD"), "token": env("NATS_TOKEN")}
	if env("NATS_CA") != "":
		options["tls"] = true
		options["tls_name"] = env("NATS_NAME")
		options["certificate"] = X509Certificate.new()
		options["certificate"].load(env("NATS_CA"))
	var opened = nats.open(address[0], int(address[1]), options, int(env("PATIENCE")))
	print("open: ", opened, " ", nats.error)
	match env("CASE"):
		"late": # the first request has no answer in time; the answer comes with the second one
			print("first: ", nats.ask("slow", 1, 300))
			print("second: ", nats.ask("slow", 2, 60000))
		"unheard":
			print("nobody: ", nats.ask("nobody.yet", 1, 300), " ", nats.problem)
			nats.publish("ready", true)
			print("somebody: ", nats.ask("nobody.yet", 2, 60000))
		"forms":
			nats.subscribe("dnp.v1.event.s", self, "on_message")
			nats.subscribe("dnp.v1.from.s.*", self, "on_message")
			nats.subscribe("dnp.v1.event.s.godot3", self, "on_message")
			nats.publish("ready", true)
			until(3)
		"reconnect":
			nats.subscribe("count", self, "on_count")
			nats.publish("ready", true)
			while seen < 50:
				nats.poll()
				OS.delay_msec(1)
			print("counted")
		"ask":
			print("answer: ", nats.ask("echo", {"a": Vector3(1, 2, 3)}, 60000), " ", nats.problem)
	nats.close()
	quit()


func until(n):
	while seen < n and nats.error == "":
		nats.poll()
		OS.delay_msec(1)


func on_count(value, _message):
	seen = max(seen, value)


func on_message(value, message):
	seen += 1
	print(message.subject, " ", message.headers.get("dnp-session", "-"), ": ", value.hex_encode() if typeof(value) == TYPE_RAW_ARRAY else value)


func env(name):
	return OS.get_environment(name)

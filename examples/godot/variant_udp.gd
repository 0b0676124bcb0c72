# A client by UDP, without any addon: it prints what changes, puts the lamp on, and sends a message when the lamp changes.
# Datagrams get lost, so it numbers its messages, and repeats the first one until the edge acknowledges it. Run it beside
# `relay dev`, or with DNP=host:port in the environment:
#
#	godot3-server -s variant_udp.gd
extends SceneTree

const REPEAT_MSEC = 100
const SILENCE_MSEC = 15000

var udp = PacketPeerUDP.new()
var lamp = 0 # its id
var cookie = null # begins every datagram; the edge tells it
var welcome = false
var waiting = [["hello", {"version": 1}]] # messages that the edge has not acknowledged
var first = 1 # the number of waiting[0]
var received = 0 # the number of the last message that came with all before it
var newest = 0 # of the datagrams without numbers: -1, -2, …
var heard = OS.get_ticks_msec()
var due = 0 # when to send


func _initialize():
	var address = (OS.get_environment("DNP") if OS.has_environment("DNP") else "127.0.0.1:3415").split(":")
	udp.set_dest_address(address[0], int(address[1]))


func _idle(_delta):
	while udp.get_available_packet_count() > 0:
		receive(udp.get_var())
	var now = OS.get_ticks_msec()
	if now >= due:
		udp.put_var([cookie, received, first, waiting[0]] if waiting else [cookie, received, 0])
		due = now + REPEAT_MSEC
	if now > heard + SILENCE_MSEC:
		quit(1)


func receive(p): # [cookie, acknowledged, number of the first message, messages...]
	if welcome and p[0] != cookie:
		return # not from the edge
	if p[0] != cookie:
		due = 0 # the edge waits for it
	cookie = p[0]
	heard = OS.get_ticks_msec()
	while waiting and first <= p[1]:
		waiting.pop_front()
		first += 1
		due = 0
	if p[2] < 0 and p[2] >= newest:
		return # another one overtook it
	newest = int(min(newest, p[2]))
	for i in range(3, p.size()):
		var number = p[2] + i - 3
		if p[2] <= 0:
			handle(p[i])
		elif number == received + 1:
			received = number
			handle(p[i])
		if p[2] > 0:
			due = 0 # acknowledge it


func handle(m):
	print(m)
	welcome = true
	if m[0] == "link" and m[2] == "lamp":
		lamp = m[1]
		waiting.append(["set", lamp, {0: 1}])
	if m[0] == "set" and m[1] == lamp:
		waiting.append(["msg", "the lamp changed".to_utf8(), true])
	if m[0] == "msg" and m[1].get_string_from_utf8() == "bye":
		quit()
	if m[0] == "bye":
		quit(1)

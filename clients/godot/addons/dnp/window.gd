# The reliable commands of the client: at most ten in flight, repeated until the edge acknowledges them.
# dnp/PROTOCOL.md: Windows, rule rtt-repeat.
extends Reference

const MODULUS = 65535
const IN_FLIGHT = 10
const WHOLE = 1357 # bytes of a message that is one command
const PART = 1190
const MESSAGE_MAX = 1048576
const QUEUE_MAX = 256
const QUEUE_BYTES = 1048576

# Milliseconds.
const RESEND_LEAST = 60
const RESEND_MOST = 500
const VARIATION_LEAST = 40
const GIVE_UP = 10000

const OVERTAKERS = 2 # that show the loss of a command: one may have been overtaken by chance

# What a command in flight consists of.
const NUMBER = 0
const BYTES = 1
const FIRST = 2
const LAST = 3
const SENDS = 4
const LATER = 5 # acknowledged commands that were sent after it
const MESSAGE = 6 # the message that it is a part of; 0 for other commands

var answered = false # the edge has acknowledged something
var heard = 0 # when the latest datagram came; the connection notes it
var repeats = 0
var trip = 0.0 # mean round trip in ms; 0 before the first sample
var deviation = 0.0
var least = 0.0
var loss = 0.25 # the part of sendings that gets lost, as it seems

var _next = 0
var _flight = [] # in the order of numbers
var _urgent = [] # commands that go before messages: [command, body]
var _queue = [] # messages
var _queued = 0 # bytes of them
var _part = 0 # bytes of the first message that are sent
var _message = 0 # the messages that were begun
var _patient_until = 0
var _held_until = -1 # the edge acknowledges what was sent before only behind a command that got lost


func idle():
	return _flight.empty() and _queue.empty() and _urgent.empty()


func ready():
	return _room() and not (_queue.empty() and _urgent.empty())


# The messages that were not acknowledged.
func unacknowledged():
	var begun = {}
	for f in _flight:
		if f[MESSAGE] > 0:
			begun[f[MESSAGE]] = true
	if _part > 0:
		begun.erase(_message) # it is in the queue, too
	return begun.size() + _queue.size()


# Queues a message. False if it is empty or too long, or if too much waits.
func send(bytes):
	if bytes.size() == 0 or bytes.size() > MESSAGE_MAX or _queue.size() >= QUEUE_MAX:
		return false
	if _queued > 0 and _queued + bytes.size() > QUEUE_BYTES:
		return false
	_queue.append(bytes) # 4: _queue.append(bytes.duplicate())
	_queued += bytes.size()
	return true


# Queues another command, which goes before messages. The body is what follows the number.
func add(command, body):
	_urgent.append([command, body])


# Asks for an acknowledgement, while nothing else does.
func probe():
	add(10, PoolByteArray([0]))


# Whether another command may be sent: ten numbers from the oldest one that is not acknowledged.
func _room():
	return _flight.empty() or _ahead(_next, _flight[0][NUMBER]) < IN_FLIGHT


static func _ahead(n, base):
	return (n - base + MODULUS) % MODULUS


# Takes the next command into flight and returns its datagram; null if there is none, or no room.
func next(now):
	if not ready():
		return null
	var other = _part == 0 and not _urgent.empty()
	var p = _build()
	_flight.append([_next, p, now, now, 1, 0, 0 if other else _message])
	_next = (_next + 1) % MODULUS
	return p


func _build():
	var number = PoolByteArray([_next & 255, _next >> 8])
	if _part == 0 and not _urgent.empty():
		var c = _urgent.pop_front()
		return PoolByteArray([c[0]]) + number + c[1]
	var bytes = _queue[0]
	var p
	if _part == 0:
		_message += 1
	if bytes.size() <= WHOLE:
		p = PoolByteArray([4]) + number + bytes
		_part = bytes.size()
	else:
		var end = int(min(_part + PART, bytes.size()))
		var flags = (1 if _part == 0 else 0) | (2 if end == bytes.size() else 0)
		p = PoolByteArray([10]) + number + PoolByteArray([flags])
		p.append_array(bytes.subarray(_part, end - 1)) # 4: p.append_array(bytes.slice(_part, end))
		_part = end
	if _part == bytes.size():
		_queue.pop_front()
		_queued -= bytes.size()
		_part = 0
	return p


# Handles an acknowledgement. False if the command is not in flight.
func acknowledge(number, now):
	for i in range(_flight.size()):
		var f = _flight[i]
		if f[NUMBER] != number:
			continue
		answered = true
		_time(f, i == 0, now)
		_flight.remove(i) # 4: _flight.remove_at(i)
		if f[SENDS] == 1:
			for other in _flight:
				if other[LAST] <= f[FIRST] and _ahead(f[NUMBER], other[NUMBER]) < MODULUS / 2:
					other[LATER] += 1
		return true
	return false


# Learns from an acknowledgement. The edge acknowledges a command when its turn has come, so one that waited for
# another says nothing about the round trip. One that comes very soon is that of the first of two copies.
func _time(f, oldest, now):
	var needless = f[SENDS] == 2 and 2 * (now - f[LAST]) < least
	if needless or (f[SENDS] == 1 and oldest and f[FIRST] >= _held_until):
		sample(now - f[FIRST])
	if f[SENDS] > 1:
		_held_until = now
	if f[SENDS] == 1:
		loss -= loss / 16
	elif needless:
		loss = max(0.0, loss - 1.0 / 16)


# Takes a round trip into account, as RFC 6298 does.
func sample(took):
	var d = max(1.0, took)
	least = d if least == 0 else min(least, d)
	if trip == 0:
		trip = d
		deviation = d / 2
		return
	deviation += (abs(trip - d) - deviation) / 4
	trip += (d - trip) / 8


# After this time no acknowledgement is to be expected any more.
func longest():
	if trip == 0:
		return RESEND_MOST
	return min(RESEND_MOST, max(RESEND_LEAST, trip + max(4 * deviation, VARIATION_LEAST)))


func _usual():
	return RESEND_MOST if trip == 0 else min(RESEND_MOST, trip + max(deviation, trip / 4))


# How often the oldest command is repeated, for which all others wait. An edge from which nothing comes may stand
# still, and one that has acknowledged nothing may be judging the login.
func _copies(now):
	if not answered or now - heard >= RESEND_MOST:
		return 1
	return 3 if loss > 0.3 else (2 if loss > 0.1 else 1)


# Returns the datagrams to repeat; null if a command waits for so long that the edge is gone.
func due(now):
	var out = []
	var copies = _copies(now)
	for i in range(_flight.size()):
		var f = _flight[i]
		if now - max(f[FIRST], _patient_until) >= GIVE_UP:
			return null
		var pause = _usual() if f[LATER] >= OVERTAKERS else min(RESEND_MOST, longest() * pow(2, int(min(10, (f[SENDS] - 1) / copies))))
		if now - f[LAST] < pause:
			continue
		if f[LAST] >= 0:
			loss += (1 - loss) / 16
		f[LAST] = now
		f[SENDS] += 1
		f[LATER] = 0
		for _n in range(copies if i == 0 else 1):
			repeats += 1
			out.append(f[BYTES])
	return out


# Makes a command due at once, because the edge asks for it.
func again(number):
	for f in _flight:
		if f[NUMBER] == number:
			f[LAST] = -100000


# Begins the time anew after which commands are given up: nothing could be heard until now.
func forgive(now):
	_patient_until = now


# Goes on over another transport: everything in flight is due at once.
func resume(now):
	forgive(now)
	heard = now
	for f in _flight:
		f[SENDS] = int(max(f[SENDS], 2))
		f[LAST] = -100000


# Since when the edge owes an answer; -1 if it owes none.
func waits_since():
	return -1 if _flight.empty() else int(max(_flight[0][FIRST], _patient_until))

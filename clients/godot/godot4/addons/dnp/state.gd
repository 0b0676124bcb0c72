# Written by scripts/godot4 from the addon for Godot 3. Tested with a web build of Godot 4.6.
# A state: a list of typed values that the edge and this client keep equal. The client makes it; use `value` and
# `write`. Its values stay when the link is gone.
extends RefCounted

var key = "" # the link message as text, or what the description in it says
var message = PackedByteArray() # the link message
var types = [] # numbers of value types
var names = [] # of the values; empty if they have none
var values = [] # the newest ones
var components = {} # by index of a data value that consists of fields: [name, type] of each
var own = false # this client made the state
var writable = false
var linked = false
var link = -1 # its LinkId

var _codec # of the client
var _writes = {} # by index: values that this client wrote, until the edge acknowledges them
var _orders = [] # by index: the newest LinkUpdate from which the edge's value was taken
var _pending # the client's writes; null while no connection has the state


func size():
	return types.size()


# Returns the index of a value by its name, or of an index itself; -1 if there is none.
func index(name):
	if typeof(name) == TYPE_STRING:
		return names.find(name)
	return name if name >= 0 and name < types.size() else -1


# Returns the newest value by name or index; null if there is none.
func value(name):
	var i = index(name)
	return values[i] if i >= 0 else null


# Returns the fields of a data value by their names, in a Dictionary of its own. Null if the link message tells none,
# or the data are of another size.
func fields(name):
	var i = index(name)
	return _codec.split(components[i], values[i]) if components.has(i) else null


# Changes a value, which the next poll sends; the client's signal `written` says how that ended. Data with fields can be written also by a Dictionary that has all of them. False if the
# state cannot be written or has no such value, or if the value cannot be this.
func write(name, value):
	var i = index(name)
	if i < 0 or not writable or (not own and not linked):
		return false
	if typeof(value) == TYPE_DICTIONARY:
		value = _codec.join(components[i], value) if components.has(i) else null
	var v = _codec.settle(types[i], value)
	if v == null:
		return false
	if values[i] == v:
		if _pending != null:
			_pending.unchanged(self, i)
		return true
	values[i] = v
	if _pending != null:
		_pending.write(self, i)
	return true

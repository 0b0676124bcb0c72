# The 38 types of values, and the codec for them. dnp/PROTOCOL.md, section "Values", has the encodings.
#
# A value is an int, a float, a String (string), a PoolByteArray (data), or:
#
#	point2, point3 of 8 and 16 bits; vector2, vector3 of float16 and float32    Vector2, Vector3
#	point2, point3 of 32 and 64 bits; vectors and quaternions of float64        Array of ints or floats
#	quaternion of float16 and float32                                           Quat
#
# A Vector has floats of 32 bits, which would lose what the types of the second line have. A uint64 above 2^63-1
# is negative, because GDScript has no such int.
extends Reference

const SINT = 0
const UINT = 1
const FLOAT = 2
const STRING = 11
const DATA = 12
const TYPES = 38
const FIELDS_MAX = 64

const NAMES = [
	"sint8", "uint8", "sint16", "uint16", "sint32", "uint32", "sint64", "uint64", "float16", "float32", "float64", "string", "data",
	"point2s8", "point2u8", "point2s16", "point2u16", "point2s32", "point2u32", "point2s64", "point2u64",
	"point3s8", "point3u8", "point3s16", "point3u16", "point3s32", "point3u32", "point3s64", "point3u64",
	"vector2f16", "vector2f32", "vector2f64", "vector3f16", "vector3f32", "vector3f64",
	"quaternionf16", "quaternionf32", "quaternionf64",
]

# Per type: components, bytes of one, kind. String and data have no components.
const LAYOUT = [
	[1, 1, 0], [1, 1, 1], [1, 2, 0], [1, 2, 1], [1, 4, 0], [1, 4, 1], [1, 8, 0], [1, 8, 1], [1, 2, 2], [1, 4, 2], [1, 8, 2], [0, 0, 3], [0, 0, 4],
	[2, 1, 0], [2, 1, 1], [2, 2, 0], [2, 2, 1], [2, 4, 0], [2, 4, 1], [2, 8, 0], [2, 8, 1],
	[3, 1, 0], [3, 1, 1], [3, 2, 0], [3, 2, 1], [3, 4, 0], [3, 4, 1], [3, 8, 0], [3, 8, 1],
	[2, 2, 2], [2, 4, 2], [2, 8, 2], [3, 2, 2], [3, 4, 2], [3, 8, 2], [4, 2, 2], [4, 4, 2], [4, 8, 2],
]

# Bytes of a value by type; 0 for string and data, which say their own size.
const SIZES = [1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8, 0, 0, 2, 2, 4, 4, 8, 8, 16, 16, 3, 3, 6, 6, 12, 12, 24, 24, 4, 8, 16, 6, 12, 24, 8, 16, 32]

var _in = StreamPeerBuffer.new() # what is read from; it has at least as many bytes as are read
var _powers = [] # of two, by the exponent of a half float


func _init():
	for e in range(31):
		_powers.append(pow(2.0, (e if e > 0 else 1) - 25))


static func type_named(name):
	return NAMES.find(name)


# Whether values of the type move evenly from one to the next.
static func is_float(type):
	return LAYOUT[type][2] == FLOAT


# Returns the value of a type that a state begins with.
static func zero(type):
	var row = LAYOUT[type]
	match row[0]:
		0: return "" if type == STRING else PoolByteArray()
		1: return 0.0 if row[2] == FLOAT else 0
	if wide(type):
		var list = []
		for _i in range(row[0]):
			list.append(0.0 if row[2] == FLOAT else 0)
		return list
	match row[0]:
		2: return Vector2()
		3: return Vector3()
	return Quat(0, 0, 0, 1)


# Whether a point, vector or quaternion is an Array.
static func wide(type):
	var row = LAYOUT[type]
	return row[0] > 1 and row[1] >= (8 if row[2] == FLOAT else 4)


# Returns a value in the form in which the type has it, so that it can be compared with what comes: numbers for
# numbers, and components from Vectors, Arrays and Colors. Null if it has another number of components, or if the type
# cannot have it: 256 is no uint8, and 0.5 is none.
func settle(type, value):
	var row = LAYOUT[type]
	if value == null:
		return null
	if row[0] == 0:
		if type == STRING:
			value = str(value)
			return value if value.to_utf8().size() < 65536 else null
		if typeof(value) == TYPE_ARRAY:
			value = PoolByteArray(value)
		return value if typeof(value) == TYPE_RAW_ARRAY and value.size() < 65536 else null
	if typeof(value) == TYPE_BOOL:
		value = int(value)
	if row[0] == 1:
		if typeof(value) != TYPE_INT and typeof(value) != TYPE_REAL:
			return null
	elif components(value).size() != row[0]:
		return null
	var out = StreamPeerBuffer.new()
	write_value(out, type, value)
	_in.data_array = out.data_array
	_in.seek(0)
	var settled = read_value(type)
	if row[2] != FLOAT:
		var got = components(settled)
		var want = components(value)
		for i in range(row[0]):
			if got[i] != want[i]:
				return null
	return settled


# Returns the components of a point, vector or quaternion as an Array.
static func components(value):
	match typeof(value):
		TYPE_VECTOR2: return [value.x, value.y]
		TYPE_VECTOR3: return [value.x, value.y, value.z]
		TYPE_QUAT: return [value.x, value.y, value.z, value.w]
		TYPE_COLOR: return [value.r, value.g, value.b, value.a]
		TYPE_ARRAY: return value
	return [value]


# Reads a value. The frequent types come first, because calls cost most of the time.
func read_value(type):
	match type:
		33: return Vector3(_in.get_float(), _in.get_float(), _in.get_float())
		9: return _in.get_float()
		1: return _in.get_u8()
		36: return Quat(_in.get_float(), _in.get_float(), _in.get_float(), _in.get_float())
		30: return Vector2(_in.get_float(), _in.get_float())
		11: return _bytes().get_string_from_utf8()
		12: return _bytes()
	var row = LAYOUT[type]
	var kind = row[1] + 16 * row[2]
	if row[0] == 1:
		return _component(kind)
	if wide(type):
		var list = []
		for _i in range(row[0]):
			list.append(_component(kind))
		return list
	match row[0]:
		2: return Vector2(_component(kind), _component(kind))
		3: return Vector3(_component(kind), _component(kind), _component(kind))
	return Quat(_component(kind), _component(kind), _component(kind), _component(kind))


func _bytes():
	var size = _in.get_u16()
	return _in.get_data(size)[1] if size > 0 else PoolByteArray()


func _component(kind):
	match kind:
		34: return _half(_in.get_u16())
		36: return _in.get_float()
		40: return _in.get_double()
		1: return _in.get_8()
		17: return _in.get_u8()
		2: return _in.get_16()
		18: return _in.get_u16()
		4: return _in.get_32()
		20: return _in.get_u32()
	return _in.get_64() # both signs


func _half(h):
	var e = (h >> 10) & 31
	var v
	if e == 31:
		v = INF if h & 1023 == 0 else NAN
	else:
		v = ((h & 1023) + (1024 if e > 0 else 0)) * _powers[e]
	return -v if h & 0x8000 else v


# Appends a value, which has the components of the type.
static func write_value(out, type, value):
	var row = LAYOUT[type]
	if row[0] == 0:
		var bytes = value.to_utf8() if type == STRING else value
		out.put_u16(bytes.size())
		if bytes.size() > 0:
			out.put_data(bytes)
		return
	var kind = row[1] + 16 * row[2]
	if row[0] == 1:
		_put(out, kind, value)
		return
	for c in components(value):
		_put(out, kind, c)


static func _put(out, kind, v):
	match kind:
		34: out.put_u16(half_bits(v))
		36: out.put_float(v)
		40: out.put_double(v)
		1, 17: out.put_u8(int(v) & 0xff)
		2, 18: out.put_u16(int(v) & 0xffff)
		4, 20: out.put_u32(int(v) & 0xffffffff)
		_: out.put_64(int(v))


# Rounds a float to a half float, half to even.
static func half_bits(v):
	if is_nan(v):
		return 0x7e00
	var negative = v < 0 or (v == 0 and atan2(v, -1.0) < 0) # which has a sign, too
	var bits = 0x8000 if negative else 0
	v = abs(v)
	if v >= 65520.0:
		return bits | 0x7c00
	if v < pow(2.0, -14):
		return bits | _even(v * pow(2.0, 24))
	var e = -14
	while v >= pow(2.0, e + 1):
		e += 1
	return bits | (((e + 14) << 10) + _even(v * pow(2.0, 10 - e))) # 1024 of the fraction is one of the exponent


static func _even(v):
	var whole = int(floor(v))
	var rest = v - whole
	return whole + (1 if rest > 0.5 or (rest == 0.5 and whole & 1) else 0)


# Returns how many bytes of the input a value takes that begins at a place; -1 if it goes beyond the end.
func size_at(type, at, end):
	var size = SIZES[type]
	if size == 0:
		if at + 2 > end:
			return -1
		_in.seek(at)
		size = 2 + _in.get_u16()
	return size if at + size <= end else -1


# ---- fields of data

# Returns the [name, type] of the fields that a link message tells, as [["aim", "vector3f32"]]; null if data cannot have them.
static func fields_of(told):
	if typeof(told) != TYPE_ARRAY or told.empty() or told.size() > FIELDS_MAX:
		return null
	var list = []
	var seen = {}
	for pair in told:
		if typeof(pair) != TYPE_ARRAY or pair.size() != 2 or typeof(pair[0]) != TYPE_STRING or typeof(pair[1]) != TYPE_STRING:
			return null
		var type = type_named(pair[1])
		if type < 0 or SIZES[type] == 0 or pair[0] == "" or seen.has(pair[0]):
			return null
		seen[pair[0]] = true
		list.append([pair[0], type])
	return list


# Returns the fields of data by name; null if the data are of another size.
func split(list, data):
	var size = 0
	for field in list:
		size += SIZES[field[1]]
	if data.size() != size:
		return null
	_in.data_array = data
	_in.seek(0)
	var parts = {}
	for field in list:
		parts[field[0]] = read_value(field[1])
	return parts


# Returns the data that consist of fields by name; null if one is missing, is not of its type, or is not in the list.
func join(list, parts):
	if parts.size() != list.size():
		return null
	var out = StreamPeerBuffer.new()
	for field in list:
		var v = settle(field[1], parts.get(field[0]))
		if v == null:
			return null
		write_value(out, field[1], v)
	return out.data_array

/**
 * The 38 value types of DNP, and how their values lie in a datagram. Integers are two's complement,
 * floats IEEE 754, all little endian; the components of a point, vector or quaternion follow one
 * another (x, y, z, w). A string or data value has a u16 length and its bytes.
 */

import { concat } from "./bytes.js";

export type Kind = "sint" | "uint" | "float" | "string" | "data";

/** Components are those of a point, vector or quaternion. Half floats are decoded to 32 bits. */
export type Components =
  | Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array
  | BigInt64Array | BigUint64Array | Float32Array | Float64Array;

/** A Value is what an application reads: 64-bit integers are bigints. */
export type Value = number | bigint | string | Components;

/** Settable is what an application may write where a Value is expected. */
export type Settable = Value | ArrayLike<number> | ArrayLike<bigint>;

export interface ValueType {
  readonly code: number;
  readonly name: string;
  readonly kind: Kind;
  readonly components: number;
  /** Bytes of one component; 0 for string and data. */
  readonly width: number;
  /** Bytes of a value; 0 if each value carries its own length. */
  readonly size: number;
}

const kinds: Record<string, Kind> = { s: "sint", u: "uint", f: "float" };

/** valueTypes has the types by code. */
export const valueTypes: readonly ValueType[] = [
  "sint8", "uint8", "sint16", "uint16", "sint32", "uint32", "sint64", "uint64",
  "float16", "float32", "float64", "string", "data",
  "point2s8", "point2u8", "point2s16", "point2u16", "point2s32", "point2u32", "point2s64", "point2u64",
  "point3s8", "point3u8", "point3s16", "point3u16", "point3s32", "point3u32", "point3s64", "point3u64",
  "vector2f16", "vector2f32", "vector2f64", "vector3f16", "vector3f32", "vector3f64",
  "quaternionf16", "quaternionf32", "quaternionf64",
].map((name, code) => {
  if (name === "string" || name === "data") return { code, name, kind: name, components: 1, width: 0, size: 0 };
  const [, shape, letter, bits] = /^(sint|uint|float|point2|point3|vector2|vector3|quaternion)([suf]?)(\d+)$/.exec(name)!;
  const components = shape === "quaternion" ? 4 : Number(/\d$/.exec(shape!)?.[0] ?? 1);
  const width = Number(bits) / 8;
  return { code, name, kind: kinds[letter || shape![0]!]!, components, width, size: components * width };
});

/** A TypeName is a name in the table, such as "vector3f32". */
export type TypeName = string;

/** typeNamed returns the value type with this name. */
export function typeNamed(name: TypeName): ValueType {
  const type = valueTypes.find((t) => t.name === name);
  if (!type) throw new TypeError(`unknown value type ${JSON.stringify(name)}`);
  return type;
}

/** encodedSize returns the bytes of the value that starts at `at`, or -1 if it does not end before `end`. */
export function encodedSize(type: ValueType, p: Uint8Array, at: number, end: number): number {
  let size = type.size;
  if (size === 0) size = at + 2 > end ? 2 : 2 + (p[at]! | (p[at + 1]! << 8));
  return at + size > end ? -1 : size;
}

/** newComponents returns an array that holds a value of this type. */
export function newComponents(type: ValueType): Components {
  const n = type.components;
  switch (type.kind === "float" ? 10 * type.width : type.kind === "sint" ? -type.width : type.width) {
    case -1: return new Int8Array(n);
    case 1: return new Uint8Array(n);
    case -2: return new Int16Array(n);
    case 2: return new Uint16Array(n);
    case -4: return new Int32Array(n);
    case 4: return new Uint32Array(n);
    case -8: return new BigInt64Array(n);
    case 8: return new BigUint64Array(n);
    case 80: return new Float64Array(n);
    default: return new Float32Array(n);
  }
}

/** readComponent decodes the component that starts at `at`. */
export function readComponent(type: ValueType, view: DataView, at: number): number | bigint {
  switch (type.kind === "float" ? 10 * type.width : type.kind === "sint" ? -type.width : type.width) {
    case -1: return view.getInt8(at);
    case 1: return view.getUint8(at);
    case -2: return view.getInt16(at, true);
    case 2: return view.getUint16(at, true);
    case -4: return view.getInt32(at, true);
    case 4: return view.getUint32(at, true);
    case -8: return view.getBigInt64(at, true);
    case 8: return view.getBigUint64(at, true);
    case 20: return fromHalf(view.getUint16(at, true));
    case 40: return view.getFloat32(at, true);
    default: return view.getFloat64(at, true);
  }
}

function writeComponent(type: ValueType, view: DataView, at: number, v: number | bigint): void {
  const { kind, width } = type;
  if (kind === "float") {
    const f = Number(v);
    if (width === 2) view.setUint16(at, toHalf(f), true);
    else if (width === 4) view.setFloat32(at, f, true);
    else view.setFloat64(at, f, true);
    return;
  }
  checkInteger(type, v);
  // The bits of a negative number are the same in a signed and an unsigned field.
  if (width === 1) view.setUint8(at, Number(v));
  else if (width === 2) view.setUint16(at, Number(v), true);
  else if (width === 4) view.setUint32(at, Number(v), true);
  else view.setBigUint64(at, BigInt.asUintN(64, BigInt(v)), true);
}

function checkInteger(type: ValueType, v: number | bigint): void {
  const bits = BigInt(8 * type.width);
  const least = type.kind === "sint" ? -(1n << (bits - 1n)) : 0n;
  const most = type.kind === "sint" ? (1n << (bits - 1n)) - 1n : (1n << bits) - 1n;
  if ((typeof v === "number" && !Number.isInteger(v)) || BigInt(v) < least || BigInt(v) > most) {
    throw new RangeError(`${v} is not a ${type.kind}${bits}`);
  }
}

/** decodeFixed returns the value of a type of fixed size that lies in view from `at` on. */
export function decodeFixed(type: ValueType, view: DataView, at: number): Value {
  if (type.components === 1) return readComponent(type, view, at);
  const out = newComponents(type);
  for (let i = 0; i < type.components; i++) out[i] = readComponent(type, view, at + i * type.width);
  return out;
}

const utf8 = new TextEncoder();

/** lengthMax is the most bytes that the u16 length of a string or data value can tell. */
const lengthMax = 65_535;

/**
 * encodeValue returns the wire bytes of a value. Data without bytes becomes one zero byte, because the
 * engine's reader ends the game of whoever receives an empty one.
 */
export function encodeValue(type: ValueType, value: Settable): Uint8Array {
  if (type.kind === "string" || type.kind === "data") return encodeBytes(type, value);
  const out = new Uint8Array(type.size);
  const view = new DataView(out.buffer);
  if (typeof value === "number" || typeof value === "bigint") {
    if (type.components !== 1) throw new TypeError(`${type.name} has ${type.components} components, got a number`);
    writeComponent(type, view, 0, value);
    return out;
  }
  if (typeof value === "string" || value.length !== type.components) {
    throw new TypeError(`${type.name} has ${type.components} components, got ${JSON.stringify(value)}`);
  }
  for (let i = 0; i < type.components; i++) writeComponent(type, view, i * type.width, value[i]!);
  return out;
}

function encodeBytes(type: ValueType, value: Settable): Uint8Array {
  let bytes: Uint8Array;
  if (type.kind === "string" && typeof value === "string") bytes = utf8.encode(value);
  else if (type.kind === "data" && value instanceof Uint8Array) bytes = value.length > 0 ? value : new Uint8Array(1);
  else throw new TypeError(`want a ${type.kind === "data" ? "Uint8Array" : "string"} for ${type.name}`);
  if (bytes.length > lengthMax) throw new RangeError(`${type.name} has ${bytes.length} bytes, at most ${lengthMax}`);
  return concat([Uint8Array.of(bytes.length, bytes.length >> 8), bytes]);
}

/** fromHalf decodes a half float. */
export function fromHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** toHalf encodes a half float and rounds to the nearest, ties to even, as IEEE 754 says. */
export function toHalf(v: number): number {
  if (Number.isNaN(v)) return 0x7e00;
  const sign = v < 0 || Object.is(v, -0) ? 0x8000 : 0;
  const magnitude = Math.abs(v);
  if (magnitude >= 65_520) return sign | 0x7c00;
  if (magnitude < 2 ** -14) return sign | roundToEven(magnitude * 2 ** 24); // 1024 is the least normal number
  let exponent = Math.floor(Math.log2(magnitude));
  if (2 ** exponent > magnitude) exponent--; // log2 rounds
  // A fraction that rounds up to 1024 carries into the exponent, which is right.
  return sign | (((exponent + 15) << 10) + roundToEven((magnitude / 2 ** exponent - 1) * 1024));
}

function roundToEven(v: number): number {
  const low = Math.floor(v);
  const rest = v - low;
  return rest > 0.5 || (rest === 0.5 && low % 2 === 1) ? low + 1 : low;
}

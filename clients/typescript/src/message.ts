/**
 * Messages in the file format of the Drag[en]gine, in which games of that engine write what they send each
 * other: values one after another, without names or types, all little endian.
 *
 *     const data = encodeMessage(["byte", 3], ["string8", "tower"], ["vector", [1, 2, 3]]);
 *     const [code, key, position] = decodeMessage(data, ["byte", "string8", "vector"]);
 *
 * The package `dnp/message` of the repository has the same in Go.
 */
import { concat } from "./bytes.js";
import { decodeFixed, encodeValue, typeNamed, type Settable, type Value } from "./value.js";

/** The types: their names in lower case, and the value type of states with the same components. */
const types = {
  char: "sint8", byte: "uint8", short: "sint16", ushort: "uint16", int: "sint32", uint: "uint32", long: "sint64", ulong: "uint64",
  float: "float32", double: "float64", string8: "string", string16: "string",
  vector: "vector3f32", vector2: "vector2f32", quaternion: "quaternionf32", point: "point2s32", point3: "point3s32",
  dvector: "vector3f64", color: "quaternionf32", color3: "vector3f32",
} as const;

/** A MessageType is one of the 20 types, such as "string8". */
export type MessageType = keyof typeof types;

/** messageTypes are the types. */
export const messageTypes = Object.keys(types) as readonly MessageType[];

/** messageMax is the most bytes of a message. */
export const messageMax = 1 << 20;

/** encodeMessage returns a message of these values. It throws what does not fit, and beyond 1 MiB. */
export function encodeMessage(...values: readonly (readonly [MessageType, Settable])[]): Uint8Array {
  const parts = values.map(([type, value]) => encodeOne(type, value));
  const message = concat(parts);
  if (message.length > messageMax) throw new RangeError(`the message has ${message.length} bytes, at most ${messageMax}`);
  return message;
}

function valueType(type: MessageType): ReturnType<typeof typeNamed> {
  if (!Object.hasOwn(types, type)) throw new TypeError(`unknown type ${JSON.stringify(type)}`);
  return typeNamed(types[type]);
}

function encodeOne(type: MessageType, value: Settable): Uint8Array {
  const encoded = encodeValue(valueType(type), value);
  if (type !== "string8") return encoded;
  if (encoded.length - 2 > 255) throw new RangeError(`a string8 has at most 255 bytes, got ${encoded.length - 2}`);
  return encoded.subarray(1).fill(encoded[0]!, 0, 1); // the length has one byte
}

const utf8 = new TextDecoder();

/** decodeMessage returns the values of a message of exactly these types, and throws at any other message. */
export function decodeMessage(p: Uint8Array, order: readonly MessageType[]): Value[] {
  const view = new DataView(p.buffer, p.byteOffset, p.length);
  let at = 0;
  /** take returns where the next bytes begin. */
  const take = (size: number): number => {
    if (at + size > p.length) throw new RangeError("the message ends inside a value");
    at += size;
    return at - size;
  };
  const values = order.map((type): Value => {
    const { size } = valueType(type);
    if (size > 0) return decodeFixed(valueType(type), view, take(size));
    const length = type === "string8" ? view.getUint8(take(1)) : view.getUint16(take(2), true);
    const start = take(length);
    return utf8.decode(p.subarray(start, start + length));
  });
  if (at < p.length) throw new RangeError(`the message has ${p.length - at} bytes behind these values`);
  return values;
}

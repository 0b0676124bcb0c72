/** The vectors that the codec in Go is tested with. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { decodeMessage, encodeMessage, messageMax, messageTypes, type MessageType } from "../src/message.js";
import type { Settable, Value } from "../src/value.js";
import { hex, unhex } from "./bytes.js";

interface Vectors {
  values: { type: MessageType; value: Settable; hex: string }[];
  message: { types: MessageType[]; values: Settable[]; hex: string };
}

const file = new URL("../../../../dnp/message/testdata/message.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8")) as Vectors;

/** settable returns the value of a vector: JSON has 64 bits as text. */
const settable = (type: MessageType, value: Settable): Settable => (type === "long" || type === "ulong" ? BigInt(value as string) : value);
const plain = (v: Value | Settable): unknown => (typeof v === "object" ? Array.from(v as ArrayLike<number>, Number) : v);

test("every type is written and read as by the engine", () => {
  const seen = new Set<MessageType>();
  for (const { type, value, hex: want } of vectors.values) {
    seen.add(type);
    assert.equal(hex(encodeMessage([type, settable(type, value)])), want, type);
    const [read] = decodeMessage(unhex(want), [type]);
    assert.equal(hex(encodeMessage([type, read!])), want, `${type}, written again`);
    if (type !== "float" && type !== "double") assert.deepEqual(plain(read!), plain(settable(type, value)), type);
  }
  assert.equal(seen.size, messageTypes.length);
  assert.equal(seen.size, 20);
});

test("a message with a byte less or more is refused", () => {
  const { types, values, hex: whole } = vectors.message;
  const p = encodeMessage(...types.map((type, i) => [type, values[i]!] as const));
  assert.equal(hex(p), whole);
  assert.deepEqual(decodeMessage(p, types).map(plain), values);
  for (let n = 0; n < p.length; n++) assert.throws(() => decodeMessage(p.subarray(0, n), types), /ends inside/, `${n} bytes`);
  assert.throws(() => decodeMessage(Uint8Array.of(...p, 0), types), /1 bytes behind/);
  const inside = new Uint8Array(p.length + 2);
  inside.set(p, 1);
  assert.deepEqual(decodeMessage(inside.subarray(1, p.length + 1), types).map(plain), values, "a part of a larger array");
});

test("what does not fit is refused", () => {
  assert.throws(() => encodeMessage(["byte", 256]), RangeError);
  assert.throws(() => encodeMessage(["vector", [1, 2]]), TypeError);
  assert.throws(() => encodeMessage(["string8", "x".repeat(256)]), /at most 255/);
  assert.throws(() => encodeMessage(["string16", "x".repeat(65_536)]), RangeError);
  assert.throws(() => encodeMessage(["toString" as MessageType, 1]), /unknown type/);
  assert.throws(() => decodeMessage(new Uint8Array(9), ["float16" as MessageType]), /unknown type/);
  const large = Array.from({ length: 17 }, () => ["string16", "x".repeat(65_535)] as const);
  assert.throws(() => encodeMessage(...large), new RegExp(`at most ${messageMax}`));
});

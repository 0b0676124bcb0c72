/** The golden datagrams of the denetwork libraries, in the file that the Go codec is tested with. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Layout, State } from "../src/state.js";
import { encodeValue, fromHalf, typeNamed, valueTypes, type Settable, type ValueType } from "../src/value.js";
import * as wire from "../src/wire.js";
import { hex, unhex } from "./bytes.js";

interface Vector {
  lib: string;
  group: string;
  name: string;
  kind: string;
  type_code: number;
  value: string;
  broken?: string;
  half_bits: number;
  packets: string[];
}

const file = new URL("../../../../dnp/wire/testdata/denetwork.json", import.meta.url);
const { vectors } = JSON.parse(readFileSync(file, "utf8")) as { vectors: Vector[] };
const inGroup = (group: string): Vector[] => vectors.filter((v) => v.group === group);
const nameOf = (v: Vector): string => `${v.lib} ${v.name}`;

const counted = (n: number): Uint8Array => Uint8Array.from({ length: n }, (_, i) => i);
const utf8 = (s: string): Uint8Array => new TextEncoder().encode(s);

function linkState(number: number, link: number, readOnly: boolean, message: string, values: [string, Settable][]): Uint8Array {
  const types = values.map(([type]) => typeNamed(type));
  return wire.linkState({ number, link, readOnly, message: utf8(message), types, values: values.map(([, v], i) => encodeValue(types[i]!, v)) });
}

function update(...values: [link: number, index: number, type: string, value: Settable][]): Uint8Array {
  let out: Uint8Array | undefined;
  const writer = new wire.UpdateWriter(1200, (p) => (out = p));
  for (const [link, index, type, value] of values) writer.add(link, index, encodeValue(typeNamed(type), value));
  writer.flush();
  return out!;
}

test("commands are built as the libraries build them", () => {
  const long = (first: number) => [
    wire.reliableMessageLong(first, wire.PartFirst, counted(1357)),
    wire.reliableMessageLong(first + 1, wire.PartLast, counted(1358).subarray(1357)),
  ];
  const want: Record<string, Uint8Array[]> = {
    "cpp connection_request": [wire.connectionRequest()],
    "java connection_request": [wire.connectionRequest()],
    "cpp message": [wire.message(utf8("hello"))],
    "python message": [wire.message(utf8("hello"))],
    "cpp reliable_message_1": [wire.reliableMessage(1, utf8("x"))],
    "cpp reliable_1357": [wire.reliableMessage(2, counted(1357))],
    "python reliable_1357": [wire.reliableMessage(1, counted(1357))],
    "java reliable_1357": [wire.reliableMessage(1, counted(1357))],
    "cpp reliable_long_1358": long(3),
    "python reliable_long_1358": long(2),
    "java reliable_long_1358": long(2),
    "cpp connection_ack_no_common_empty": [wire.connectionAck(wire.NoCommonProtocol)],
    "python connection_close": [wire.connectionClose()],
    "java connection_close": [wire.connectionClose()],
    "cpp reliable_ack": [wire.reliableAck(0)],
    "cpp link_up": [wire.reliableAck(1), wire.linkUp(0x34)],
    "cpp link_down": [wire.reliableAck(2), wire.linkDown(0x35)],
    "cpp link_update_two": [update([0, 0, "uint16", 7], [0, 2, "string", "zz"], [1, 0, "sint8", -1])],
    "cpp link_state_two": [
      linkState(0, 0, false, "AA", [["uint16", 0x0201], ["float32", 0], ["string", ""]]),
      linkState(1, 1, true, "BB", [["sint8", 0]]),
    ],
  };
  for (const v of inGroup("command")) assert.deepEqual(want[nameOf(v)]?.map(hex), v.packets, nameOf(v));
  assert.deepEqual(inGroup("command").map(nameOf).sort(), Object.keys(want).sort(), "each command is among the vectors");
});

/** parse reads a value as the vectors write it: "-1,2,-3", "hello", and data as hex. */
function parse(type: ValueType, text: string): Settable {
  if (type.kind === "string") return text;
  if (type.kind === "data") return unhex(text);
  const components = text.split(",").map((part) => (type.width === 8 && type.kind !== "float" ? BigInt(part) : Number(part)));
  return components.length === 1 ? components[0]! : (components as number[]);
}

/** decoded reads a value from its encoding as an application does. */
function decoded(type: ValueType, encoded: Uint8Array): unknown {
  const config = { key: "", message: new Uint8Array(1), own: true, writable: true };
  return new State({ ...config, layout: new Layout([type]), values: [encoded] }).get(0);
}

test("values are encoded and decoded as the libraries do", () => {
  const seen = new Set<number>();
  for (const v of inGroup("value").filter((v) => !v.broken)) {
    const type = valueTypes[v.type_code]!;
    const value = parse(type, v.value);
    const encoded = encodeValue(type, value);
    const datagram = unhex(v.packets[0]!);
    seen.add(type.code);
    if (v.kind === "link_state") {
      assert.equal(hex(linkState(0, 0, true, "M", [[type.name, value]])), v.packets[0], nameOf(v));
      const m = wire.parseLinkState(datagram)!;
      assert.equal(m.types[0], type, nameOf(v));
      assert.deepEqual(hex(m.values[0]!), hex(encoded), nameOf(v));
    } else {
      assert.equal(hex(update([0, 0, type.name, value])), v.packets[0], nameOf(v));
      let got = "";
      const ok = wire.readUpdate(datagram, { types: () => [type], value: (_l, _i, p, at, size) => (got = hex(p.subarray(at, at + size))) });
      assert.ok(ok, nameOf(v));
      assert.equal(got, hex(encoded), nameOf(v));
    }
    const back = decoded(type, encoded);
    assert.equal(hex(encodeValue(type, back as Settable)), hex(encoded), `${nameOf(v)}: decoded to ${String(back)}`);
    if (type.kind === "sint" || type.kind === "uint" || type.kind === "string") assert.equal(String(back), String(value), nameOf(v));
  }
  // The vectors have no library that encodes vector2f32 correctly.
  assert.deepEqual(valueTypes.filter((t) => !seen.has(t.code)).map((t) => t.name), ["vector2f32"]);
});

test("vectors of Python, which carry the type of a component, do no harm", () => {
  const broken = inGroup("value").filter((v) => v.broken);
  assert.ok(broken.length > 0);
  for (const v of broken) {
    const m = wire.parseLinkState(unhex(v.packets[0]!));
    if (v.kind === "link_state") assert.equal(m?.types[0]?.components, 1, nameOf(v));
  }
});

test("half floats mean what the libraries say, whatever way they round", () => {
  const halves = inGroup("half");
  assert.ok(halves.length > 0);
  for (const v of halves) {
    const text = v.name.split(" -> ")[2]!.replace(/^inf$/, "Infinity").replace(/^-inf$/, "-Infinity").replace(/^nan$/i, "NaN");
    const want = Number(text);
    const got = fromHalf(v.half_bits);
    assert.equal(hex(encodeValue(typeNamed("float16"), got)), v.packets[0], `${nameOf(v)}: the bits survive`);
    const wrong = v.lib === "python" && want > 65_504; // Python decodes infinity as its bits
    if (!wrong) assert.ok(Object.is(got, want) || Math.abs(got - want) <= 1e-5 * Math.abs(want), `${nameOf(v)}: got ${got}`);
  }
});

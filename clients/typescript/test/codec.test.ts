import assert from "node:assert/strict";
import { test } from "node:test";
import { Connection, type Output } from "../src/connection.js";
import { encodeValue, fromHalf, toHalf, typeNamed, valueTypes } from "../src/value.js";
import * as wire from "../src/wire.js";
import { hex, random, seeds, unhex } from "./bytes.js";

test("numbers are modulo 65535", () => {
  assert.equal(wire.seq(65_534), 65_534);
  assert.equal(wire.seq(65_535), 0, "65534 is followed by 0");
  assert.equal(wire.unwrap(0, 65_534), 65_535);
  assert.equal(wire.unwrap(65_534, 65_540), 65_534);
  assert.equal(wire.unwrap(65_535, 10), -1, "65535 does not exist");
  assert.equal(wire.unwrap(65_530, 3), -1, "there is no number before the first");
  for (let n = 0; n < 200_000; n += 97) assert.equal(wire.unwrap(wire.seq(n), n + 100), n);
});

test("half floats: all bits survive, and rounding is to the nearest even", () => {
  for (let bits = 0; bits < 65_536; bits++) {
    const v = fromHalf(bits);
    if (!Number.isNaN(v)) assert.equal(toHalf(v), bits, `0x${bits.toString(16)}`);
  }
  const cases: [number, number][] = [[2049, 0x6800], [2051, 0x6802], [65_519.9, 0x7bff], [65_520, 0x7c00], [1e9, 0x7c00], [2 ** -25, 0], [-1e-9, 0x8000], [6.1035e-5, 0x0400], [NaN, 0x7e00]];
  for (const [v, want] of cases) assert.equal(toHalf(v), want, `${v}`);
});

test("values that do not fit their type are refused", () => {
  const bad: [string, unknown][] = [["uint8", 256], ["uint8", -1], ["sint8", 1.5], ["uint64", 1n << 64n], ["sint64", -(1n << 63n) - 1n], ["vector3f32", [1, 2]], ["float32", [1, 2]], ["string", 5], ["data", "x"], ["string", "x".repeat(70_000)], ["vector2f32", 1]];
  for (const [type, value] of bad) {
    assert.throws(() => encodeValue(typeNamed(type), value as never), /RangeError|TypeError/, `${type} ${String(value)}`);
  }
  assert.throws(() => typeNamed("float128"), TypeError);
  assert.equal(hex(encodeValue(typeNamed("data"), new Uint8Array())), "010000", "data is never empty: the engine could not read it");
});

test("every truncation of a LinkState fails", () => {
  const whole = unhex("05 0100 3412 01 0200 4141 0300 03 0102 0b 0200 7a7a 24 00000000 00000000 00000000 0000803f");
  const m = wire.parseLinkState(whole)!;
  assert.deepEqual([m.number, m.link, m.readOnly, m.types.map((t) => t.name)], [1, 0x1234, true, ["uint16", "string", "quaternionf32"]]);
  assert.equal(hex(wire.linkState(m)), hex(whole));
  for (let n = 0; n < whole.length; n++) assert.equal(wire.parseLinkState(whole.subarray(0, n)), undefined, `${n} bytes`);
  whole[5] = 3;
  assert.equal(wire.parseLinkState(whole)!.readOnly, false, "only the flags value 1 is read-only");
});

test("a LinkUpdate is applied up to the first link that cannot be read", () => {
  const layouts: Record<number, string[]> = { 1: ["uint16", "string"], 2: ["sint8"] };
  const read = (p: Uint8Array) => {
    const got: string[] = [];
    const ok = wire.readUpdate(p, {
      types: (link) => layouts[link]?.map(typeNamed),
      value: (link, index, bytes, at, size) => got.push(`${link}.${index}=${hex(bytes.subarray(at, at + size))}`),
    });
    return [ok, ...got];
  };
  const whole = unhex("09 02 0100 02 0000 0700 0100 0200 7a7a 0200 01 0000 ff");
  assert.deepEqual(read(whole), [true, "1.0=0700", "1.1=02007a7a", "2.0=ff"]);
  for (let n = 0; n < whole.length; n++) assert.equal(read(whole.subarray(0, n))[0], false, `${n} bytes`);
  assert.deepEqual(read(unhex("09 03 0200 01 0000 ff 0900 01 0000 00 0200 01 0000 01")), [false, "2.0=ff"], "link 9 is unknown");
  assert.deepEqual(read(unhex("09 02 0200 01 0000 ff 0200 01 0100 01")), [false, "2.0=ff"], "there is no value 1");
  assert.deepEqual(read(unhex("09 03 0200 01 0000 ff")), [false, "2.0=ff"], "C++ announces links that do not follow");
});

test("LinkUpdates have at most 127 links of 127 values, and keep the size", () => {
  const sizes: number[] = [];
  let values = 0;
  const writer = new wire.UpdateWriter(1200, (p) => {
    sizes.push(p.length);
    assert.ok(p[1]! <= 127);
    assert.ok(wire.readUpdate(p, { types: () => Array(1000).fill(typeNamed("uint8")), value: () => values++ }));
  });
  for (let i = 0; i < 500; i++) writer.add(7, i, Uint8Array.of(i));
  for (let link = 0; link < 300; link++) writer.add(link, 0, Uint8Array.of(1));
  writer.flush();
  assert.equal(values, 800);
  assert.ok(Math.max(...sizes) <= 1200);
  const big = encodeValue(typeNamed("string"), "x".repeat(5000));
  let got = 0;
  const one = new wire.UpdateWriter(1200, (p) => (got = p.length));
  one.add(1, 0, big);
  one.flush();
  assert.equal(got, 2 + 3 + 2 + big.length, "a value that needs more has a datagram of its own");
});

/** deaf is an Output that only counts. */
function deaf(): Output & { datagrams: number } {
  const out = { datagrams: 0, send: () => void out.datagrams++, ready() {}, connected() {}, closed() {}, message() {}, linked() {}, changed() {}, unlinked() {} };
  return out;
}

test("whatever arrives, the connection neither throws nor grows", () => {
  for (const seed of seeds(20)) {
    const chance = random(seed);
    const below = (n: number) => Math.floor(chance() * n);
    const out = deaf();
    const connection = new Connection({}, out);
    connection.advance(0);
    connection.receive(0, wire.connectionAck(wire.Accepted));
    const samples = ["05 0000 0080 01 0100 41 0200 03 0102 0b 0200 7a7a", "09 01 0080 01 0000 0700", "04 0100 61", "0a 0200 01 6161", "06 0000 00", "07 0080", "08 0080", "03 61"].map(unhex);
    for (let i = 0; i < 3000 && connection.phase === "established"; i++) {
      const p = samples[below(samples.length)]!.slice(0, 1 + below(30));
      for (let flips = below(3); flips > 0; flips--) p[below(p.length)] = below(256);
      if (p[0] === wire.Command.connectionClose) continue;
      try {
        connection.receive(i, p);
        if (i % 10 === 0) connection.advance(i);
      } catch (error) {
        assert.fail(`SEED=${seed}: datagram ${hex(p)}: ${String(error)}`);
      }
    }
    assert.ok(out.datagrams < 9000, `SEED=${seed}: ${out.datagrams} answers`);
  }
  assert.equal(valueTypes.length, 38);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, Layout, State } from "../src/state.js";
import { encodeValue, typeNamed, valueTypes, type Settable } from "../src/value.js";
import { random, seeds } from "./bytes.js";

setFlagsFromString("--expose-gc");
const gc = runInNewContext("gc") as () => void;

function makeState(values: [type: string, value: Settable, name?: string][], options = {}): State {
  const layout = new Layout(values.map(([type]) => typeNamed(type)), values.map(([, , name], i) => name ?? String(i)));
  const encoded = values.map(([, value], i) => encodeValue(layout.types[i]!, value));
  const state = new State({ key: "tower", message: Uint8Array.of(1), layout, values: encoded, own: false, writable: true, ...options });
  state.linked = true;
  return state;
}

function receive(state: State, index: number, value: Settable, now: number): boolean {
  const p = encodeValue(state.layout.types[index]!, value);
  return state.receive(index, p, 0, p.length, now);
}

test("every type is read as it was set", () => {
  for (const type of valueTypes) {
    let value: Settable = 1;
    if (type.kind === "string") value = "grün";
    else if (type.kind === "data") value = Uint8Array.of(1, 2);
    else if (type.width === 8 && type.kind !== "float") value = type.components === 1 ? 2n : Array.from({ length: type.components }, (_, i) => BigInt(i + 1));
    else if (type.components > 1) value = Array.from({ length: type.components }, (_, i) => i + 1);
    const state = makeState([["uint8", 0], [type.name, type.kind === "data" ? Uint8Array.of(9) : type.kind === "string" ? "" : type.components > 1 ? Array(type.components).fill(0) : 0]]);
    state.set(1, value);
    const got = state.get(1);
    if (typeof value === "object") assert.deepEqual(Array.from(got as Uint8Array, String), Array.from(value as Uint8Array, String), type.name);
    else assert.equal(got, value, type.name);
  }
});

test("names, indexes, rights", () => {
  const state = makeState([["float32", 93.5, "hp"], ["string", "x", "owner"]]);
  assert.equal(state.get("hp"), 93.5);
  assert.equal(state.get(1), "x");
  assert.throws(() => state.get("mana"), RangeError);
  assert.throws(() => state.get(2), RangeError);
  assert.throws(() => makeState([["uint8", 1]], { writable: false }).set(0, 2), /read-only/);
  state.linked = false;
  assert.throws(() => state.set(0, 1), /no link/);
  assert.deepEqual(describe(new TextEncoder().encode("tower")), { key: "tower" });
  assert.deepEqual(describe(new TextEncoder().encode('{"v":1,"key":"tower","names":["hp"]}')), { key: "tower", names: ["hp"] });
  assert.deepEqual(describe(new TextEncoder().encode("{tower")), { key: "{tower" });
});

test("set tells the connection only what differs", () => {
  const state = makeState([["uint8", 1], ["vector2f32", [1, 2]]]);
  const written: number[] = [];
  const write = (i: number): Promise<void> => Promise.resolve(void written.push(i));
  state.connection = { write, pending: () => undefined, command: () => Promise.reject(new Error()) };
  state.set(0, 1);
  state.set(1, [1, 2]);
  state.set(0, 2);
  assert.deepEqual(written, [0]);
  assert.equal(receive(state, 0, 2, 0), false, "a value that came again is no change");
  assert.equal(receive(state, 0, 3, 0), true);
});

/** garbage returns how many bytes a frame leaves on the heap, on average. */
function garbage(frame: (n: number) => void): number {
  const frames = 10; // few, so that no collection takes place meanwhile
  let least = Infinity; // the compiler and the runner make garbage too
  for (let round = 0; round < 50; round++) {
    if (round >= 35) gc();
    const before = process.memoryUsage().heapUsed;
    for (let n = 0; n < frames; n++) frame(n);
    if (round >= 35) least = Math.min(least, (process.memoryUsage().heapUsed - before) / frames);
  }
  return least;
}

test("a render loop over 1,000 states makes no garbage", () => {
  const states = Array.from({ length: 1000 }, (_, i) => makeState([["vector3f32", [i, 0, 0]], ["quaternionf16", [0, 0, 0, 1]], ["float64", i], ["uint64", 1n << 60n], ["string", "name"]]));
  const positions = new Float32Array(3 * states.length);
  let sum = 0;
  const reading = garbage(() => {
    for (let i = 0; i < states.length; i++) {
      const state = states[i]!;
      state.read(0, positions, 3 * i);
      sum += (state.get(1) as Float32Array)[3]! + (state.get(2) as number) + (state.get(4) as string).length;
      if (state.get(3) === 0n) sum++;
    }
  });
  const changing = garbage((n) => { // as a LinkUpdate does, 1,000 vectors a frame
    for (let i = 0; i < states.length; i++) {
      const p = moves[n & 1]!;
      states[i]!.receive(0, p, 0, p.length, n * 16);
      states[i]!.read(0, positions, 3 * i);
    }
  });
  for (const state of states) state.at(0);
  const past = garbage((n) => {
    for (let i = 0; i < states.length; i++) states[i]!.at(n * 16).read(0, positions, 3 * i);
  });
  assert.ok(sum > 0);
  for (const [what, bytes] of Object.entries({ reading, changing, past })) {
    assert.ok(bytes < 1000, `${what}: ${bytes} bytes a frame are more than one for each state`);
  }
});

const moves = [[1, 2, 3], [4, 5, 6]].map((v) => encodeValue(typeNamed("vector3f32"), v));

/** motion plays 20 changes a second of a value that grows by 1 a second, and returns what `at` shows 60 times a second. */
function motion(jitter: number, loss: number, seed: number): { shown: number[]; delay: number } {
  const chance = random(seed);
  const state = makeState([["float64", 0]]);
  state.at(0);
  const arrivals: { at: number; value: number }[] = [];
  for (let t = 50; t <= 10_000; t += 50) if (chance() >= loss) arrivals.push({ at: t + chance() * jitter, value: t / 1000 });
  const shown: number[] = [];
  for (let t = 0; t < 10_000; t += 1000 / 60) {
    for (; arrivals.length > 0 && arrivals[0]!.at <= t; arrivals.shift()) receive(state, 0, arrivals[0]!.value, arrivals[0]!.at);
    shown.push(state.at(t).get(0) as number);
  }
  return { shown, delay: state.at(10_000).delay };
}

test("motion is even, with a delay that fits the path", () => {
  const smooth = motion(0, 0, 1);
  assert.ok(smooth.delay >= 50 && smooth.delay < 60, `on a perfect path the delay is one interval, got ${smooth.delay} ms`);
  for (const seed of seeds(5)) {
    const jitter = motion(40, 0, seed).shown.map((v, i, all) => v - (all[i - 1] ?? v)).slice(120);
    assert.ok(Math.max(...jitter) < 2.2 / 60, `SEED=${seed}: changes that come at once are spread, the largest step is ${Math.max(...jitter)}`);
    const { shown, delay } = motion(40, 0.1, seed);
    assert.ok(delay > 60 && delay < 250, `SEED=${seed}: delay ${delay} ms`);
    const steps = shown.slice(121).map((v, i) => v - shown[i + 120]!); // after two seconds
    assert.ok(Math.min(...steps) >= 0, `SEED=${seed}: nothing goes back`);
    const stops = steps.filter((s) => s === 0).length;
    assert.ok(stops < 0.03 * steps.length, `SEED=${seed}: ${stops} of ${steps.length} frames stand still`);
    const fast = steps.filter((s) => s > 2.5 / 60).length;
    assert.ok(fast < 0.02 * steps.length, `SEED=${seed}: ${fast} of ${steps.length} steps are more than two and a half times too long`);
  }
});

test("after a pause the motion begins where it stopped, and now", () => {
  const state = makeState([["float32", 0], ["uint8", 0], ["float32", 0]]);
  state.at(0);
  for (let t = 50; t <= 1000; t += 50) receive(state, 0, t, t);
  for (let t = 1000; t < 5000; t += 10) state.at(t);
  assert.equal(state.at(5000).get(0), 1000);
  receive(state, 0, 2000, 5000);
  receive(state, 1, 5, 5000);
  receive(state, 2, 2000, 5000);
  assert.equal(state.at(5001).get(1), 5, "what is no float is the newest value");
  const early = state.at(5010).get(0) as number;
  assert.ok(early < 1500, `it does not jump to the end: ${early}`);
  const [one, two] = [state.at(5030).get(0) as number, state.at(5030).get(2) as number];
  assert.ok(one > 1000 && one < 2000 && Math.abs((one - 1000) / 1000 - two / 2000) < 1e-4, `values of one datagram move together: ${one}, ${two}`);
  assert.equal(state.at(5200).get(0), 2000);
});

test("rotations take the short way and stay rotations", () => {
  const state = makeState([["quaternionf32", [0, 0, 0, 1]]]);
  state.at(0);
  receive(state, 0, [0, 0, -Math.SQRT1_2, -Math.SQRT1_2], 1000); // 90°, with the other sign
  const q = state.at(1050).get(0) as Float32Array;
  assert.ok(Math.abs(Math.hypot(...q) - 1) < 1e-6);
  assert.ok(q[3]! > 0.7 && q[2]! > 0 && q[2]! < 0.7, `between the two: ${q}`);
});

test("the fields of data", () => {
  const message = '{"v":1,"key":"tank","names":["hp","gun"],"fields":{"1":[["aim","vector3f32"],["__proto__","uint16"]]}}';
  const told = describe(new TextEncoder().encode(message));
  const types = ["uint8", "data"].map(typeNamed);
  const layout = new Layout(types, told.names, told.fields);
  const state = new State({ key: told.key, message: Uint8Array.of(1), layout, values: [encodeValue(types[0]!, 1), encodeValue(types[1]!, new Uint8Array(14))], own: false, writable: true });
  state.linked = true;
  const shown = (): string => JSON.stringify(Object.entries(state.fields("gun")!).map(([name, v]) => [name, typeof v === "object" ? Array.from(v as Float32Array) : v]));
  assert.equal(shown(), '[["aim",[0,0,0]],["__proto__",0]]');
  state.setFields("gun", { aim: [1, 2.5, -3], ["__proto__"]: 7 });
  assert.equal(shown(), '[["aim",[1,2.5,-3]],["__proto__",7]]');
  assert.deepEqual(Array.from(state.get(1) as Uint8Array), [0, 0, 128, 63, 0, 0, 32, 64, 0, 0, 64, 192, 7, 0], "the bytes of package dnp/linkmsg");
  assert.throws(() => state.setFields("gun", { aim: [1, 2, 3] }), /"__proto__" is missing/);
  assert.throws(() => state.setFields("gun", { aim: [1, 2, 3], shots: 1 }), /no field "shots"/);
  assert.throws(() => state.setFields("gun", { aim: [1, 2, 3], ["__proto__"]: 65_536 }), RangeError);
  assert.throws(() => state.setFields("hp", { aim: 1 }), /tells no fields/);
  assert.equal(state.fields("hp"), undefined);
  state.set("gun", Uint8Array.of(1));
  assert.equal(state.fields("gun"), undefined, "data of another size");
});

test("fields that no data can have are ignored", () => {
  const long = JSON.stringify(Array.from({ length: 65 }, (_, i) => [`f${i}`, "uint8"]));
  for (const fields of ["7", "null", "[]", '{"x":[["a","uint8"]]}', '{"-1":[["a","uint8"]]}', '{"1":[]}', '{"1":[["a","string"]]}', '{"1":[["a","wide"]]}', '{"1":[["a"]]}',
    '{"1":[["","uint8"]]}', '{"1":[["a","uint8"],["a","uint8"]]}', '{"1":{"a":"uint8"}}', `{"1":${long}}`]) {
    const told = describe(new TextEncoder().encode(`{"v":1,"key":"k","names":["x"],"fields":${fields}}`));
    assert.deepEqual(told, { key: "k", names: ["x"] }, fields);
  }
});

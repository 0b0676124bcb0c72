/**
 * Writes over a bad network against a dumb model of an edge and a game, in virtual time. Each value that anybody sets is
 * another number, so that the order of what is shown can be compared with the order of what was true.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { concat } from "../src/bytes.js";
import { Connection } from "../src/connection.js";
import type { State } from "../src/state.js";
import { encodeValue, typeNamed } from "../src/value.js";
import { Command, linksEnd, linkState, readUpdate, reliableAck, reliableMessage, u16, UpdateWriter } from "../src/wire.js";
import { random, seeds } from "./bytes.js";
import { granted, readUvarint, uvarint, withTrailer } from "./server.js";

const link = 0x8000;
const values = 3;
const type = typeNamed("uint32");
const types = Array<typeof type>(values).fill(type);
const encode = (v: number): Uint8Array => encodeValue(type, v);
const refuses = (v: number): boolean => v % 7 === 0;

interface Path {
  readonly loss: number;
  readonly delay: number;
  readonly jitter: number;
  readonly late: number; // the part of datagrams that come again up to 5 s later
  readonly corrects: number; // the part of writes to which the game answers with another value
}

/** A Model has the client, what is true, and the datagrams between them. */
class Model {
  now = 0;
  client: Connection;
  state!: State;
  readonly truth = Array.from({ length: values }, (_, i) => [i + 1]); // of each value: all that was ever true
  readonly results = new Map<number, string>(); // by value that the client set last in its chain
  #wire: { at: number; to: "client" | "edge"; p: Uint8Array }[] = [];
  #later: { at: number; call: () => void }[] = [];
  #generation = 1;
  #counter = 0;
  #last = 100;
  readonly #applied = new Set<string>(); // numbers and values
  readonly #newest = Array<number>(values).fill(0); // the number of the latest write
  readonly #ends = new Map<Promise<void>, number>();
  #told: number[]; // by value: the place in truth of what was shown last
  lossless = false;

  constructor(private readonly path: Path, private readonly chance: () => number, private readonly why: string) {
    this.#told = Array<number>(values).fill(0);
    this.client = new Connection({}, {
      send: (p) => this.#carry("edge", p),
      ready() {},
      connected() {},
      closed: (reason) => assert.fail(`${this.why}: closed ${reason}`),
      message() {},
      linked: (state) => (this.state = state),
      changed: (_, index) => this.#shown(index),
      unlinked() {},
    });
    this.client.advance(0);
    this.client.receive(0, Uint8Array.of(1, 0, 0, 0));
    const offer = { number: 1, link, readOnly: false, message: Uint8Array.of(97), types, values: types.map((_, i) => encode(i + 1)) };
    for (const p of [reliableMessage(0, granted), linkState(offer)]) this.client.receive(0, p);
  }

  /** unused returns a number that was never a value. */
  unused(): number {
    return ++this.#last;
  }

  /** become makes a value true, and has the edge send it, a few times. */
  become(index: number, v: number): void {
    this.truth[index]!.push(v);
    for (const after of [0, 60, 180, 500, 1500]) this.after(after, () => this.truth[index]!.at(-1) === v && this.send([index]));
  }

  after(ms: number, call: () => void): void {
    this.#later.push({ at: this.now + ms, call });
  }

  /** send sends what is true now of some values, and acknowledgements. */
  send(indexes: number[], ...acks: Uint8Array[]): void {
    let p: Uint8Array = Uint8Array.of(Command.linkUpdate, 0);
    const writer = new UpdateWriter(1000, (whole) => (p = whole));
    for (const i of indexes) writer.add(link, i, encode(this.truth[i]!.at(-1)!));
    writer.flush();
    this.#carry("client", withTrailer(p, this.#generation, ++this.#counter, ...acks));
  }

  /** takeover has another edge go on. */
  takeover(): void {
    this.#generation++;
    this.#counter = 0;
    this.client.resume(this.now);
  }

  write(index: number, v: number): void {
    const promise = this.state.set(index, v);
    this.#told[index] = -1; // it is the client's own, until it is acknowledged
    const before = this.#ends.has(promise);
    this.#ends.set(promise, v);
    if (before) return;
    const end = (result: string): void => void this.results.set(this.#ends.get(promise)!, result);
    promise.then(() => {
      this.#told[index] = Math.max(this.#told[index]!, this.truth[index]!.indexOf(this.#ends.get(promise)!));
      end("ok");
    }, (e: Error) => end(e.message));
  }

  #shown(index: number): void {
    const v = this.state.get(index) as number;
    const place = this.truth[index]!.indexOf(v);
    assert.ok(place >= 0, `${this.why} at ${this.now}: value ${index} shows ${v}, which was never true`);
    assert.ok(place > this.#told[index]!, `${this.why} at ${this.now}: value ${index} goes back to ${v}, behind ${this.#told[index]}`);
    this.#told[index] = place;
  }

  #carry(to: "client" | "edge", p: Uint8Array): void {
    const copies = this.chance() < this.path.late ? 2 : 1;
    for (let n = 0; n < copies; n++) {
      if (!this.lossless && this.chance() < this.path.loss) continue;
      const delay = this.path.delay + this.chance() * this.path.jitter + (n === 0 ? 0 : this.chance() * 5000);
      this.#wire.push({ at: this.now + delay, to, p });
    }
  }

  #receive(p: Uint8Array): void {
    if (p[0] === Command.reliableMessage || p[0] === Command.reliableMessageLong) this.#carry("client", reliableAck(u16(p, 1)));
    if (p[0] !== Command.linkUpdate) return;
    const written: [number, number][] = [];
    const target = { types: () => types, value: (_: number, index: number, b: Uint8Array, at: number) => void written.push([index, u16(b, at) + 65536 * u16(b, at + 2)]) };
    readUpdate(p, target);
    const number = readUvarint(p, linksEnd(p, target));
    this.after(this.chance() * 40, () => this.#apply(number, written));
  }

  /** apply is the relay's part, and what the edge sends when it has heard from it. */
  #apply(number: number, written: [number, number][]): void {
    const refused: Uint8Array[] = [];
    for (const [index, v] of written) {
      if (refuses(v)) refused.push(Uint8Array.of(0, 0x80, index, 0, 2));
      else if (number > this.#newest[index]!) {
        const key = `${number} ${index}`;
        assert.ok(!this.#applied.has(key), `${this.why}: a number is applied twice`);
        this.#applied.add(key);
        this.#newest[index] = number;
        this.become(index, v);
        if (this.chance() < this.path.corrects) this.after(this.chance() * 20, () => this.become(index, this.unused()));
      }
    }
    const differ = written.filter(([index, v]) => this.truth[index]!.at(-1) !== v).map(([index]) => index);
    this.after(this.chance() * 20, () => {
      const now = written.filter(([index, v]) => this.truth[index]!.at(-1) !== v).map(([index]) => index);
      for (const ms of [60, 180, 500, 1500]) if (differ.length > 0) this.after(ms, () => this.send(differ));
      this.send([...new Set([...differ, ...now])], concat([uvarint(number), Uint8Array.of(refused.length), ...refused]));
    });
  }

  async run(ms: number): Promise<void> {
    for (const end = this.now + ms; this.now < end; ) {
      this.now += 5;
      const late = (list: { at: number }[]): void => void list.sort((a, b) => a.at - b.at);
      const calls = this.#later.filter((l) => l.at <= this.now);
      this.#later = this.#later.filter((l) => l.at > this.now);
      late(calls);
      for (const { call } of calls) call();
      const due = this.#wire.filter((d) => d.at <= this.now);
      this.#wire = this.#wire.filter((d) => d.at > this.now);
      late(due);
      for (const { to, p } of due) {
        if (to === "edge") this.#receive(p);
        else this.client.receive(this.now, p);
      }
      if (this.client.nextTimeout() <= this.now) this.client.advance(this.now);
      await null; // what waits for promises
    }
  }
}

async function play(path: Path, seed: number): Promise<void> {
  const chance = random(seed);
  const why = `SEED=${seed} ${JSON.stringify(path)}`;
  const m = new Model(path, chance, why);
  const last: number[] = []; // by index: what the client set last
  await m.run(500);
  for (let step = 0; step < 60; step++) {
    const index = Math.floor(chance() * values);
    const what = chance();
    if (what < 0.5) m.write(index, (last[index] = m.unused()));
    else if (what < 0.75) m.become(index, m.unused());
    else if (what < 0.78) m.takeover();
    if (chance() < 0.7) await m.run(Math.floor(chance() * 150));
  }
  if (path.loss > 0) await m.run(4000);
  m.lossless = true; // the rest arrives
  await m.run(15_000);
  for (let i = 0; i < values; i++) if (path.loss > 0) m.send([i]);
  await m.run(1000);
  await new Promise(setImmediate);
  for (let i = 0; i < values; i++) {
    assert.equal(m.state.get(i), m.truth[i]!.at(-1), `${why}: value ${i} is what is true`);
    if (last[i] === undefined) continue;
    const result = refuses(last[i]!) ? "the write was refused: bounds" : "ok";
    assert.equal(m.results.get(last[i]!), result, `${why}: the end of the last write`);
    assert.equal(m.truth[i]!.includes(last[i]!), result === "ok", `${why}: ${last[i]} became true`);
  }
  assert.ok([...m.results].every(([v, result]) => (result === "ok") === m.truth.some((t) => t.includes(v))), `${why}: results are true`);
}

const paths: Path[] = [];
for (const [delay, jitter] of [[0, 0], [30, 20], [100, 60], [300, 180]] as const) {
  for (const loss of [0, 0.05, 0.3]) paths.push({ delay, jitter, loss, late: 0.05, corrects: 0.3 });
}

test("over any path the client ends with what is true, never goes back, and each number is applied once", async () => {
  const rounds = Number(process.env["ROUNDS"] ?? 12);
  for (const path of paths) for (const seed of seeds(rounds)) await play(path, seed);
});

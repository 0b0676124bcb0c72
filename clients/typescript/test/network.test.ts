/** The client and a scripted server over a bad network, in virtual time: a seed repeats a run exactly. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Connection, type CloseReason, type ConnectionConfig } from "../src/connection.js";
import { Layout, State } from "../src/state.js";
import { typeNamed } from "../src/value.js";
import { hex, random, seeds } from "./bytes.js";
import { Server } from "./server.js";

interface Path {
  readonly loss: number;
  readonly double?: number;
  readonly delay: number; // ms
  readonly jitter?: number; // ms; more than the pauses between datagrams reorders them
}

/** A World has a client and a server, and the datagrams between them. */
class World {
  now = 0;
  closed: CloseReason | undefined;
  connected = -1;
  readonly messages: string[] = [];
  readonly states = new Map<string, State>();
  readonly client: Connection;
  readonly server: Server;
  readonly #chance: () => number;
  #wire: { at: number; to: "client" | "server"; p: Uint8Array }[] = [];

  constructor(private readonly path: Path, seed: number, config: ConnectionConfig = {}) {
    this.#chance = random(seed);
    this.server = new Server((p) => this.#carry("client", p));
    this.client = new Connection(config, {
      send: (p) => this.#carry("server", p),
      ready() {},
      connected: () => (this.connected = this.now),
      closed: (reason) => (this.closed = reason),
      message: (data) => this.messages.push(new TextDecoder().decode(data)),
      linked: (state) => this.states.set(state.key, state),
      changed() {},
      unlinked: (state) => this.states.delete(state.key),
    });
  }

  #carry(to: "client" | "server", p: Uint8Array): void {
    for (let copies = this.#chance() < (this.path.double ?? 0) ? 2 : 1; copies > 0; copies--) {
      if (this.#chance() < this.path.loss) continue;
      this.#wire.push({ at: this.now + this.path.delay + this.#chance() * (this.path.jitter ?? 0), to, p });
    }
  }

  /** run plays on until `until` holds, or for so long. It returns when that was. */
  run(ms: number, until: () => boolean = () => false): number {
    const end = this.now + ms;
    while (this.now < end && !until()) {
      this.now += 5;
      const due = this.#wire.filter((d) => d.at <= this.now).sort((a, b) => a.at - b.at);
      this.#wire = this.#wire.filter((d) => d.at > this.now);
      for (const { to, p } of due) {
        const datagram = Buffer.from(p); // as Node has them, and gone after the call
        if (to === "server") this.server.receive(p);
        else this.client.receive(this.now, datagram);
        datagram.fill(0xee);
      }
      this.server.advance(this.now);
      if (this.client.nextTimeout() <= this.now) this.client.advance(this.now);
    }
    return this.now;
  }

  connect(): void {
    this.client.advance(0);
    this.run(6000, () => this.connected >= 0 || this.closed !== undefined);
  }
}

const bad: Path = { loss: 0.3, double: 0.1, delay: 30, jitter: 40 };

test("30 % loss each way, doubles, reordering: every message once and in order, every value right at the end", () => {
  let connected = 0;
  for (const seed of seeds(40)) {
    const w = new World(bad, seed, { login: new TextEncoder().encode("login") });
    const why = (what: string) => `SEED=${seed} at ${w.now} ms: ${what}`;
    const own = makeOwn();
    w.connect();
    if (w.closed) continue; // all seven requests or answers were lost
    connected++;
    w.client.offer(own);
    const lamp = w.server.offer(0x8000, "lamp", false, ["uint8", 0], ["vector3f32", [0, 0, 0]]);
    const ball = w.server.offer(0x8001, "ball", true, ["vector3f32", [0, 0, 0]], ["string", ""], ["quaternionf16", [0, 0, 0, 1]]);
    const want = { server: ["login"], client: [] as string[] };
    for (let i = 0; i < 60; i++) {
      const text = i % 20 === 19 ? `${i} long `.repeat(900) : `${i}`;
      w.client.send(new TextEncoder().encode(text));
      w.server.message(new TextEncoder().encode(text));
      want.server.push(text);
      want.client.push(text);
      w.server.set(ball, 0, [i, 2 * i, 0.5]);
      w.server.set(ball, 1, `at ${i}`);
      w.states.get("lamp")?.set(0, i);
      own.set(0, i);
      w.run(50);
    }
    w.run(20_000, () => w.client.idle && w.server.idle);
    w.run(6000); // the repeats of values
    assert.equal(w.closed, undefined, why("the connection stands"));
    assert.deepEqual(w.server.messages, want.server, why("messages of the client"));
    assert.deepEqual(w.messages, want.client, why("messages of the server"));
    assert.deepEqual([...(w.states.get("ball")!.get(0) as Float32Array)], [59, 118, 0.5], why("ball"));
    assert.equal(w.states.get("ball")!.get(1), "at 59", why("ball"));
    assert.equal(w.states.get("lamp")!.get(0), 59, why("lamp at the client"));
    assert.equal(lamp.values[0]![0], 59, why("lamp at the server"));
    assert.equal(w.server.peerValues.get(0)?.[0], "3b00", why("the own state at the server"));
    assert.equal(w.states.get("me"), own, why("the own state is linked"));
  }
  assert.ok(connected >= 0.9 * seeds(40).length, `only ${connected} connections were made`);
});

function makeOwn(): State {
  const layout = new Layout([typeNamed("uint16")]);
  return new State({ key: "me", message: new TextEncoder().encode("me"), layout, values: [new Uint8Array(2)], own: true, writable: true });
}

test("a good path: no command is repeated, and the round trip is known", () => {
  const w = new World({ loss: 0, delay: 40, jitter: 5 }, 1);
  w.connect();
  for (let i = 0; i < 100; i++) {
    w.client.send(Uint8Array.of(i));
    w.run(20);
  }
  w.run(1000);
  assert.equal(w.server.messages.length, 100);
  assert.equal(w.client.repeats, 0);
  assert.ok(w.client.roundTrip > 80 && w.client.roundTrip < 110, `${w.client.roundTrip} ms`);
});

test("30 % loss each way: a message takes less than half a second, most of them a fifth", () => {
  const took: number[] = [];
  for (const seed of seeds(20)) {
    const w = new World({ loss: 0.3, delay: 30, jitter: 10 }, seed);
    w.connect();
    for (let i = 0; i < 40 && !w.closed; i++) {
      const start = w.now;
      w.client.send(Uint8Array.of(i));
      took.push(w.run(5000, () => w.server.messages.length > i) - start);
      w.run(300, () => w.client.idle);
    }
  }
  took.sort((a, b) => a - b);
  const at = (share: number) => took[Math.floor(share * (took.length - 1))]!;
  assert.ok(at(0.9) <= 250, `90 % within ${at(0.9)} ms`);
  assert.ok(at(0.99) <= 700, `99 % within ${at(0.99)} ms`);
});

test("loss does not make the round trip look longer", () => {
  for (const seed of seeds(20)) {
    const w = new World({ loss: 0.3, delay: 1, jitter: 12 }, seed); // the pauses are longer than the round trip
    w.connect();
    for (let i = 0; i < 100 && !w.closed; i++) {
      w.client.send(Uint8Array.of(i));
      w.run(5000, () => w.client.idle);
    }
    assert.ok(w.client.roundTrip < 30, `SEED=${seed}: ${w.client.roundTrip} ms`);
  }
});

test("numbers wrap, with loss", () => {
  const w = new World({ loss: 0.05, delay: 1 }, 3);
  w.connect();
  let sent = 0;
  while (sent < 66_000) {
    if (w.client.idle || sent % 64 !== 0) w.client.send(Uint8Array.of(sent++ & 255));
    else w.run(5);
    if (sent % 64 === 0) w.run(60_000, () => w.client.idle);
  }
  w.run(10_000, () => w.client.idle);
  assert.equal(w.closed, undefined);
  assert.equal(w.server.messages.length, 66_000);
});

test("the values of a write that crosses one of the server converge", () => {
  for (const seed of seeds(20)) {
    const w = new World({ loss: 0.1, delay: 50, jitter: 20 }, seed);
    w.connect();
    const lamp = w.server.offer(0x8000, "lamp", false, ["uint8", 0]);
    w.run(1000);
    w.states.get("lamp")!.set(0, 7);
    w.run(20);
    w.server.set(lamp, 0, 9); // it has not seen the 7
    w.run(8000);
    assert.equal(hex(lamp.values[0]!), hex(Uint8Array.of(w.states.get("lamp")!.get(0) as number)), `SEED=${seed}`);
  }
});

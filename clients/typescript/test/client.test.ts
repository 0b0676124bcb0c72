/** The shell, in virtual time: dialling, logging in, connecting again, continuing a session. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { backoff, Client, loginMessage, type Clock, type Closing, type Options } from "../src/client.js";
import { dialsFor } from "../src/connect.js";
import type { DialOptions, Session, Transport } from "../src/transport.js";
import { connectionAck, connectionClose } from "../src/wire.js";
import { hex } from "./bytes.js";
import { Server } from "./server.js";

/** settle lets promises come to their end. */
const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

class TestClock implements Clock {
  #now = 0;
  #timers: { at: number; call: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  after(ms: number, call: () => void): () => void {
    const timer = { at: this.#now + ms, call };
    this.#timers.push(timer);
    return () => void (this.#timers = this.#timers.filter((t) => t !== timer));
  }

  /** run goes on by so long, in steps of 5 ms. */
  async run(ms: number, step: (now: number) => void = () => {}): Promise<void> {
    for (const end = this.#now + ms; this.#now < end; ) {
      this.#now += 5;
      step(this.#now);
      const due = this.#timers.filter((t) => t.at <= this.#now);
      this.#timers = this.#timers.filter((t) => t.at > this.#now);
      for (const t of due) t.call();
      await settle();
    }
  }
}

/** An Edge accepts transports, each with a server of its own unless a session goes on. */
class Edge {
  readonly clock = new TestClock();
  readonly dialled: (string | undefined)[] = []; // with which resume tokens
  readonly events: string[] = [];
  readonly closings: Closing[] = [];
  server!: Server;
  transport!: Transport;
  answer: (dialled: number) => Session | undefined | Error = () => undefined;
  deaf = false;

  play(options: Options = {}): Client {
    const client = new Client(new URL("wss://edge.example"), [(_url, o) => this.#dial(o)], { clock: this.clock, ...options });
    client.on("open", () => this.events.push("open"));
    client.on("link", (state) => this.events.push(`link ${state.key}`));
    client.on("unlink", (state) => this.events.push(`unlink ${state.key}`));
    client.on("message", (data) => this.events.push(`message ${new TextDecoder().decode(data)}`));
    client.on("close", (closing) => {
      this.events.push(`close ${closing.reason}`);
      this.closings.push(closing);
    });
    return client;
  }

  async #dial(options: DialOptions): Promise<Transport> {
    this.dialled.push(options.resume);
    const session = this.answer(this.dialled.length);
    if (session instanceof Error) throw session;
    const transport: Transport = {
      maxDatagramSize: 1200,
      session,
      send: (p) => void (this.deaf || this.transport !== transport || this.server.receive(p, this.clock.now())),
      onDatagram: () => {},
      onClose: () => {},
      close: () => this.events.push("transport closed"),
    };
    this.transport = transport;
    if (!session?.resumed) this.server = new Server((p) => this.transport.onDatagram(p));
    return transport;
  }

  run(ms: number): Promise<void> {
    return this.clock.run(ms, (now) => this.server?.advance(now));
  }

  take(): string[] {
    return this.events.splice(0);
  }
}

test("the pauses between attempts", () => {
  const longest = [0, 1, 2, 3, 4, 5, 6, 7, 100].map((n) => backoff(n, 1));
  assert.deepEqual(longest, [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]);
  assert.equal(backoff(3, 0), 1000, "half of a pause is random");
});

test("a token is wrapped, a login message is not", () => {
  assert.equal(hex(loginMessage("ab")), "444e50410102006162");
  assert.equal(hex(loginMessage(Uint8Array.of(1, 2))), "0102");
});

test("a client connects, logs in, and connects again with another token", async () => {
  const edge = new Edge();
  let tokens = 0;
  const client = edge.play({ token: async () => `token ${++tokens}` });
  assert.throws(() => client.send("x"), /no connection/);
  const me = client.offer("me", [{ type: "uint8", value: 1, name: "hp" }]);
  await edge.run(100);
  edge.server.offer(0x8000, "ball", true, ["uint8", 1]);
  await edge.run(300);
  assert.deepEqual(edge.take(), ["open", "link ball", "link me"]);
  assert.match(edge.server.messages[0]!, /^DNPA.*token 1$/s);
  assert.equal(edge.server.first, 4, "the login goes before all offers");
  me.set("hp", 7);
  client.send("hello");
  client.sendUnreliable("there");
  await edge.run(200);
  assert.deepEqual([edge.server.peerValues.get(0)![0], edge.server.messages[1], edge.server.unreliable[0]], ["07", "hello", "there"]);
  assert.deepEqual([...client.states.keys()].sort(), ["ball", "me"]);

  edge.transport.onDatagram(connectionClose());
  assert.deepEqual(edge.take(), ["unlink me", "unlink ball", "transport closed", "close peer"]);
  assert.ok(edge.closings[0]!.retryIn! <= 250 && edge.closings[0]!.retryIn! >= 125);
  assert.equal(client.open, false);
  await edge.run(1000);
  assert.deepEqual(edge.take(), ["open", "link me"], "own states are offered again");
  assert.match(edge.server.messages[0]!, /token 2$/);
  assert.equal(edge.server.peerValues.get(0)![0], "07");
  client.close();
  await edge.run(20_000);
  assert.deepEqual(edge.take(), ["unlink me", "transport closed", "close local"], "closed for good");
  assert.equal(edge.closings[1]!.retryIn, undefined);
});

test("an edge that is away is dialled with growing pauses", async () => {
  const edge = new Edge();
  edge.answer = () => new Error("refused");
  edge.play();
  await edge.run(4000);
  assert.ok(edge.dialled.length >= 4 && edge.dialled.length <= 6, `${edge.dialled.length} attempts in 4 s`);
  assert.deepEqual([edge.closings[0]!.reason, edge.closings[0]!.detail], ["lost", "refused"]);
  const pauses = edge.closings.map((c) => c.retryIn!);
  assert.ok(pauses.at(-1)! > pauses[0]!, `${pauses}`);
});

test("a refused token is not tried again, an edge that does not answer is", async () => {
  const refused = new Edge();
  refused.play({ token: "bad" });
  refused.deaf = true;
  await refused.run(20);
  refused.transport.onDatagram(connectionAck(0));
  refused.transport.onDatagram(connectionClose());
  await refused.run(5000);
  assert.deepEqual([refused.closings.map((c) => c.reason), refused.dialled.length], [["refused"], 1]);

  const silent = new Edge();
  silent.play();
  silent.deaf = true;
  await silent.run(5500);
  assert.deepEqual([silent.closings.map((c) => c.reason), silent.dialled.length], [["timeout"], 2]);
});

test("a session goes on over another transport", async () => {
  const edge = new Edge();
  const sessions: Record<number, Session | Error> = { 1: { token: "session-1", resumed: false }, 2: new Error("no way yet"), 3: { token: "session-3", resumed: true } };
  edge.answer = (n) => sessions[n] ?? { token: `session-${n}`, resumed: n === 5 };
  const client = edge.play();
  await edge.run(100);
  edge.transport.onClose({ code: 1006, reason: "the network changed" });
  client.send("while it is away");
  edge.server.message(new TextEncoder().encode("from the edge"));
  await edge.run(2000);
  assert.deepEqual(edge.dialled, [undefined, "session-1", "session-1"]);
  assert.deepEqual(edge.take(), ["open", "message from the edge"], "the application notices nothing");
  assert.deepEqual(edge.server.messages, ["while it is away"]);

  edge.transport.onClose({ code: 1006, reason: "the edge ended" });
  const old = edge.transport;
  await edge.run(2000);
  assert.deepEqual(edge.dialled[3], "session-3");
  assert.deepEqual(edge.take(), ["close lost", "open"], "this edge does not know the session");
  old.onDatagram(connectionClose());
  old.onClose({ code: 1006, reason: "late" });
  assert.equal(client.open, true, "what an old transport says late does not count");
  edge.transport.onDatagram(connectionClose());
  await edge.run(25_000);
  assert.deepEqual(edge.take(), ["transport closed", "close peer", "transport closed", "close lost", "open"], "an edge cannot continue a session that this client has ended");
  client.close();
});

test("what a handler throws neither stops the others nor the protocol", async () => {
  const edge = new Edge();
  const client = edge.play();
  const thrown: unknown[] = [];
  const uncaught = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException").on("uncaughtException", (error) => thrown.push(error));
  client.on("message", () => {
    throw new Error("a fault of the application");
  });
  await edge.run(100);
  for (let i = 0; i < 3; i++) edge.server.message(Uint8Array.of(65 + i));
  await edge.run(500);
  process.removeAllListeners("uncaughtException");
  for (const listener of uncaught) process.on("uncaughtException", listener);
  assert.deepEqual(edge.take(), ["open", "message A", "message B", "message C"]);
  assert.equal(thrown.length, 3);
  client.close();
});

test("which transports a URL is tried with", () => {
  const [webtransport, websocket, udp] = ["wt", "ws", "udp"].map((name) => Object.assign(async () => Promise.reject(new Error(name)), { label: name }));
  const all = { webtransport: webtransport!, websocket: websocket!, udp: udp! };
  const names = (url: string, kind: "auto" | "websocket" | "udp" = "auto") => dialsFor(new URL(url), kind, all).map((d) => (d as { label?: string }).label);
  assert.deepEqual(names("wss://edge"), ["ws"], "there is no WebTransport in Node");
  (globalThis as { WebTransport?: unknown }).WebTransport = class {};
  assert.deepEqual(names("wss://edge"), ["wt", "ws"]);
  assert.deepEqual(names("http://localhost"), ["wt", "ws"], "the edge may tell the certificate of its WebTransport");
  assert.deepEqual(names("udp://localhost"), ["udp"]);
  assert.deepEqual(names("wss://edge", "websocket"), ["ws"]);
  assert.throws(() => dialsFor(new URL("udp://edge"), "auto", { websocket: websocket! }), /no transport udp/);
  delete (globalThis as { WebTransport?: unknown }).WebTransport;
});

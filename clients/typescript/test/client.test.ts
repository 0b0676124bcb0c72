/** The shell, in virtual time: dialling, logging in, connecting again, continuing a session. */
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { backoff, Client, loginMessage, pauseAfter, type Clock, type Closing, type Options } from "../src/client.js";
import { dialsFor } from "../src/connect.js";
import { DialError, type CloseInfo, type Dial, type DialOptions, type Session, type Transport } from "../src/transport.js";
import { connectionAck, connectionClose } from "../src/wire.js";
import { hex, unhex } from "./bytes.js";
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
  readonly dialledAt: number[] = [];
  readonly events: string[] = [];
  readonly sent: string[] = [];
  readonly closings: Closing[] = [];
  server!: Server;
  transport!: Transport;
  answer: (dialled: number) => Session | undefined | Error = () => undefined;
  deaf = false;
  ordered = false;
  mute = false; // nothing comes out of the transport that there is

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
    this.dialledAt.push(this.clock.now());
    const session = this.answer(this.dialled.length);
    if (session instanceof Error) throw session;
    const transport: Transport = {
      maxDatagramSize: 1200,
      ordered: this.ordered,
      session,
      send: (p) => {
        if (this.transport !== transport) return;
        this.sent.push(hex(p));
        if (!this.deaf) this.server.receive(p);
      },
      onDatagram: () => {},
      onClose: () => {},
      close: () => this.events.push("transport closed"),
    };
    this.transport = transport;
    this.mute = false;
    if (!session?.resumed) this.server = new Server((p) => void (this.mute || this.transport.onDatagram(p)));
    return transport;
  }

  run(ms: number): Promise<void> {
    return this.clock.run(ms, (now) => this.server?.advance(now));
  }

  /** keepSessions lets the edge continue each session whose token comes. */
  keepSessions(): void {
    this.answer = (n) => ({ token: `session-${n}`, resumed: this.dialled[n - 1] !== undefined });
  }

  /** end ends the transport; nothing more comes out of it. */
  end(code: number, reason = ""): void {
    this.mute = true;
    this.transport.onClose({ code, reason });
  }

  take(): string[] {
    return this.events.splice(0);
  }
}

/** connected returns an edge that continues sessions, and a client that has been connected to it for 100 ms. */
async function connected(t: TestContext, options?: Options): Promise<{ edge: Edge; client: Client }> {
  const edge = new Edge();
  edge.keepSessions();
  const client = edge.play(options);
  t.after(() => void client.close()); // in virtual time it would not end
  await edge.run(100);
  return { edge, client };
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
  assert.deepEqual(edge.take(), ["unlink me", "close local", "transport closed"], "closed for good");
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

test("the pauses after a transport ended", () => {
  const lost = { code: 1006, reason: "" };
  assert.deepEqual([0, 1, 2, 3].map((n) => pauseAfter(n, lost, 1)), [50, 250, 500, 1000], "the first is short");
  assert.equal(pauseAfter(0, lost, 0), 0);
  const leaving = { code: 1012, reason: "leaving; retry-after=0" };
  assert.deepEqual([0, 1, 2].map((n) => pauseAfter(n, leaving, 1)), [0, 250, 500], "edges that all leave are not asked in a loop");
  const full = { code: 1013, reason: "full; retry-after=1000" };
  assert.deepEqual([pauseAfter(0, full, 0), pauseAfter(0, full, 1), pauseAfter(7, full, 1)], [1000, 1500, 15_000]);
});

test("what a client does after a transport ended, by the code", async () => {
  const same: string[] = []; // the application notices nothing
  const anew = (reason: string) => ["unlink ball", `close ${reason}`, "open"];
  const cases: [code: number, reason: string, events: string[], token: string | undefined, pause: [least: number, most: number]][] = [
    [1006, "", same, "session-1", [0, 60]],
    [1005, "", same, "session-1", [0, 60]],
    [0, "", same, "session-1", [0, 60]],
    [1008, "slow", same, "session-1", [0, 60]],
    [1003, "text", same, "session-1", [0, 60]],
    [1009, "too long", same, "session-1", [0, 60]],
    [1012, "leaving; retry-after=0", same, "session-1", [0, 10]],
    [1012, "leaving; retry-after=700", same, "session-1", [700, 1060]],
    [1013, "full; retry-after=1000", same, "session-1", [1000, 1510]],
    [1013, "draining", same, "session-1", [0, 60]],
    [4000, "unknown", anew("lost"), undefined, [0, 60]],
    [1000, "over", anew("peer"), undefined, [125, 260]],
  ];
  for (const [code, reason, events, token, [least, most]] of cases) {
    const why = `${code} ${reason}`;
    const edge = new Edge();
    edge.keepSessions();
    const client = edge.play();
    await edge.run(50);
    edge.server.offer(0x8000, "ball", true, ["uint8", 1]);
    await edge.run(500);
    edge.take();
    const at = edge.clock.now();
    edge.end(code, reason);
    if (events === same) {
      client.send("while it is away");
      assert.equal(client.sendUnreliable("x"), false, `${why}: what nothing carries is dropped`);
    }
    await edge.run(3000);
    assert.deepEqual(edge.take(), events, why);
    assert.deepEqual(edge.dialled, [undefined, token], why);
    const pause = edge.dialledAt[1]! - at;
    assert.ok(pause >= least && pause <= most, `${why}: a pause of ${pause} ms, want ${least} to ${most}`);
    assert.deepEqual(edge.server.messages, events === same ? ["while it is away"] : [], why);
    assert.equal(client.open, true, why);
    client.close();
  }
});

test("a client whose session another one continues ends", async (t) => {
  const { edge } = await connected(t);
  edge.end(4001, "replaced");
  await edge.run(20_000);
  assert.deepEqual([edge.take(), edge.dialled.length], [["open", "close replaced"], 1]);
  assert.deepEqual([edge.closings[0]!.retryIn, edge.closings[0]!.detail], [undefined, "replaced"]);
});

test("an edge that hears late of an attempt that this client gave up does not end the client", async () => {
  const edge = new Edge();
  edge.answer = (n) => (n === 2 ? new Error("no answer in time") : { token: "session", resumed: n > 1 });
  const client = edge.play();
  await edge.run(100);
  edge.end(1006);
  await edge.run(1000);
  edge.end(4001, "replaced");
  await edge.run(1000);
  assert.deepEqual([edge.take(), client.open], [["open"], true]);
  assert.deepEqual(edge.dialled, [undefined, "session", "session", "session"]);
  await edge.run(20_000);
  edge.end(4001, "replaced");
  assert.deepEqual(edge.take(), ["close replaced"], "later it is another client");
});

test("an edge that loses each transport at once is dialled with growing pauses", async (t) => {
  const { edge, client } = await connected(t);
  edge.end(1006);
  for (let i = 0; i < 2000; i++) {
    const n = edge.dialled.length;
    await edge.run(5);
    if (edge.dialled.length > n) edge.end(1006);
  }
  assert.ok(edge.dialled.length >= 4 && edge.dialled.length <= 10, `${edge.dialled.length} attempts in 10 s`);
  await edge.run(40_000);
  assert.equal(client.open, true);
  edge.end(1006);
  const n = edge.dialled.length;
  await edge.run(60);
  assert.equal(edge.dialled.length, n + 1, "after a good transport the pauses begin anew");
});

test("without any transport a connection ends when the edge has been silent for too long", async () => {
  const edge = new Edge();
  let back = false;
  edge.answer = (n) => (n === 1 || back ? { token: `session-${n}`, resumed: edge.dialled[n - 1] !== undefined } : new Error("no way"));
  const client = edge.play();
  await edge.run(100);
  edge.end(1006, "the network is gone");
  client.send("never heard");
  await edge.run(9000);
  assert.deepEqual(edge.take(), ["open"]);
  await edge.run(2000);
  const [first, ...others] = edge.take();
  assert.equal(first, "close timeout", "as over UDP");
  assert.ok(others.every((event) => event === "close lost"), `${others}`);
  back = true;
  await edge.run(16_000);
  assert.equal(edge.dialled.at(-1), undefined, "the session is over");
  assert.equal(edge.take().at(-1), "open");
  client.close();
});

test("over its new transport the client says something at once", async (t) => {
  const { edge, client } = await connected(t);
  client.send("one");
  await edge.run(1000);
  edge.end(1006);
  edge.sent.length = 0;
  await edge.clock.run(100);
  assert.deepEqual(edge.sent, ["0a020000"], "a probe, where everything was acknowledged");

  edge.deaf = true;
  client.send("two");
  client.send("three");
  await edge.clock.run(1000);
  edge.end(1006);
  edge.sent.length = 0;
  edge.deaf = false;
  await edge.clock.run(300);
  assert.deepEqual(edge.sent.slice(0, 2), ["04030074776f", "0404007468726565"], "or what was not, without a pause");
  await edge.run(1000);
  assert.deepEqual(edge.server.messages, ["one", "two", "three"]);
});

test("values that were set while there was no transport arrive", async (t) => {
  const { edge, client } = await connected(t);
  const lamp = edge.server.offer(0x8000, "lamp", false, ["uint8", 0], ["uint8", 0]);
  await edge.run(500);
  client.states.get("lamp")!.set(0, 7);
  await edge.run(3000);
  edge.server.set(lamp, 0, 9); // by another client
  const way = edge.answer;
  edge.answer = () => new Error("no way");
  edge.end(1006);
  client.states.get("lamp")!.set(1, 8);
  await edge.run(5000); // longer than values are repeated
  edge.answer = way;
  await edge.run(10_000); // longer than the longest pause between attempts
  assert.deepEqual(lamp.values.map(hex), ["09", "08"], "and those that had arrived before are not repeated");
  assert.equal(client.states.get("lamp")!.get(0), 9);
  assert.deepEqual(edge.take(), ["open", "link lamp"]);
});

test("a transport through which no answer comes is replaced", async (t) => {
  const { edge, client } = await connected(t);
  client.send("one");
  await edge.run(1000);
  edge.deaf = edge.mute = true;
  client.send("two");
  await edge.run(3900);
  assert.equal(edge.dialled.length, 1);
  edge.deaf = false;
  await edge.run(700);
  assert.deepEqual([edge.dialled, edge.take()], [[undefined, "session-1"], ["open", "transport closed"]]);
  assert.deepEqual(edge.server.messages, ["one", "two"]);

  const slow = new Edge(); // whose login service takes its time
  slow.keepSessions();
  const patient = slow.play({ token: "ada" });
  slow.deaf = true;
  await slow.run(10);
  slow.transport.onDatagram(connectionAck(0));
  await slow.run(6000);
  assert.equal(slow.dialled.length, 1);
  patient.close();
});

test("an edge may end a transport before the client has its token", async () => {
  const edge = new Edge();
  edge.keepSessions();
  let give = (_token: string) => {};
  const client = edge.play({ token: () => new Promise<string>((resolve) => (give = resolve)) });
  await edge.run(50);
  edge.end(1013, "full; retry-after=1000");
  give("ada");
  await edge.run(10);
  assert.deepEqual(edge.take(), ["close rejected"]);
  assert.ok(edge.closings[0]!.retryIn! >= 1000 && edge.closings[0]!.detail === "full; retry-after=1000");
  client.close();
});

test("without reconnect a session goes on over another transport, and no other one begins", async (t) => {
  const { edge } = await connected(t, { reconnect: false });
  edge.end(1006);
  await edge.run(100);
  assert.deepEqual(edge.take(), ["open"]);
  edge.answer = () => ({ token: "another", resumed: false });
  edge.end(1006, "the last");
  await edge.run(20_000);
  assert.deepEqual([edge.take(), edge.dialled.length], [["close lost", "transport closed"], 3]);
  assert.deepEqual([edge.closings[0]!.retryIn, edge.closings[0]!.detail], [undefined, "the last"]);
});

test("the second transport is dialled when the first does not get through in 2 s, and first the next time", async () => {
  const clock = new TestClock();
  const dialled: string[] = [];
  let answer: unknown = new DialError("full", { code: 1013, reason: "full; retry-after=1000" });
  const dial = (name: string): Dial => (_url, { signal }) => {
    dialled.push(`${name} ${clock.now()}`);
    return new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(new Error("no answer in time")));
      if (name === "second") reject(answer);
    });
  };
  const closings: Closing[] = [];
  const client = new Client(new URL("wss://edge"), [dial("first"), dial("second")], { clock, reconnect: false });
  client.on("close", (closing) => closings.push(closing));
  await clock.run(3000);
  assert.deepEqual(dialled, ["first 5", "second 2005"]);
  assert.equal(closings[0]!.reason, "rejected");

  dialled.length = 0;
  const other = new Client(new URL("wss://edge"), [dial("second"), dial("first")], { clock, reconnect: false });
  await clock.run(5000);
  assert.deepEqual(dialled, ["second 3005"], "what an edge says holds for all transports");
  answer = new DialError("lost", { code: 1006, reason: "" } satisfies CloseInfo);
  const third = new Client(new URL("wss://edge"), [dial("second"), dial("first")], { clock, reconnect: false });
  await clock.run(5000);
  assert.deepEqual(dialled.slice(1), ["second 8005", "first 8005"], "a transport that is lost says nothing");
  for (const c of [client, other, third]) c.close();
});

test("a client that leaves says so until the edge knows, and acknowledges nothing meanwhile", async () => {
  const answers: [answer: string, sendings: number, took: number][] = [["0900", 3, 100], ["02", 3, 100], ["", 10, 500], ["0900010700", 10, 500], ["090000", 10, 500], ["030a", 10, 500]];
  for (const [answer, sendings, took] of answers) {
    const { edge, client } = await connected({ after() {} } as unknown as TestContext);
    edge.sent.length = 0;
    edge.take();
    let left = -Infinity;
    const at = edge.clock.now();
    void client.close().then(() => (left = edge.clock.now() - at));
    edge.server.message(Uint8Array.of(65));
    assert.deepEqual([edge.sent.splice(0), edge.take()], [["020000"], ["close local"]], `${answer}: at once`);
    for (let n = 1; n < 3; n++) while (edge.sent.length < n) await edge.run(5);
    if (answer) edge.transport.onDatagram(unhex(answer));
    await edge.run(2000);
    assert.deepEqual([edge.sent, edge.take()], [Array<string>(sendings - 1).fill("020000"), ["transport closed"]], answer);
    assert.ok(left > 0 && left <= took + 100, `${answer}: the promise took ${left} ms`);
    await client.close(); // again
    assert.deepEqual(edge.take(), []);
  }
});

test("over an ordered transport a client says once that it leaves, and over one that ends no more", async (t) => {
  const edge = new Edge();
  edge.ordered = true;
  const client = edge.play();
  await edge.run(100);
  edge.sent.length = 0;
  await client.close();
  assert.deepEqual([edge.sent, edge.take()], [["02"], ["open", "transport closed", "close local"]]);

  const other = await connected(t);
  const left = other.client.close();
  other.edge.end(1000, "over");
  other.edge.sent.length = 0;
  await left;
  await other.edge.run(500);
  assert.deepEqual(other.edge.sent, []);
});

test("the end of a connection tells how many messages the edge has not acknowledged", async () => {
  for (const how of ["close", "edge", "transport"]) {
    const edge = new Edge();
    const client = edge.play({ token: "ada", reconnect: false });
    await edge.run(100);
    client.offer("me", [{ type: "uint8", value: 1 }]);
    client.send("heard");
    await edge.run(300);
    edge.deaf = true;
    client.send("lost");
    client.send("long ".repeat(9000)); // more parts than may be under way
    client.send("waits");
    client.offer("you", [{ type: "uint8", value: 1 }]);
    await edge.run(100);
    if (how === "close") void client.close();
    else if (how === "edge") edge.transport.onDatagram(connectionClose());
    else edge.end(1006);
    assert.deepEqual(edge.closings.map((c) => c.unacknowledged), [3], how);
    await edge.run(1500);
  }
});

/** Transcripts: what arrives and when, and what the connection does about it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Connection, type ConnectionConfig } from "../src/connection.js";
import { Layout, State } from "../src/state.js";
import { typeNamed } from "../src/value.js";
import { hex, unhex } from "./bytes.js";

/** A Transcript drives a connection and writes down what it says: "> " is a datagram in hex. */
class Transcript {
  readonly connection: Connection;
  now = 0;
  #said: string[] = [];
  readonly states = new Map<string, State>();

  constructor(config: ConnectionConfig = {}) {
    this.connection = new Connection({ plain: true, ...config }, { // without the hello; writes.test.ts has it
      send: (p) => this.#said.push(`> ${hex(p.length > 12 ? p.subarray(0, 12) : p)}${p.length > 12 ? `… ${p.length}` : ""}`),
      ready() {},
      connected: () => this.#said.push("connected"),
      closed: (reason) => this.#said.push(`closed ${reason}`),
      message: (data, reliable) => this.#said.push(`message ${data.length > 40 ? `${data.length} bytes` : new TextDecoder().decode(data)}${reliable ? "" : " unreliable"}`),
      linked: (state) => {
        this.states.set(state.key, state);
        this.#said.push(`linked ${state.key}`);
      },
      changed: (state, index) => this.#said.push(`changed ${state.key} ${index}=${String(state.get(index))}`),
      unlinked: (state) => this.#said.push(`unlinked ${state.key}`),
    });
  }

  /** at goes to a time, with everything that is due before, and gives the connection datagrams. */
  at(now: number, ...datagrams: string[]): this {
    for (let t; (t = this.connection.nextTimeout()) <= now && this.now < now; ) {
      this.now = Math.min(now, Math.max(this.now + 1, t));
      this.connection.advance(this.now);
    }
    this.now = now;
    for (const p of datagrams) this.connection.receive(now, unhex(p));
    this.connection.advance(now);
    return this;
  }

  want(why: string, ...said: string[]): this {
    assert.deepEqual(this.#said, said, `at ${this.now} ms: ${why}`);
    this.#said = [];
    return this;
  }

  connect(): this {
    this.at(0, "01 00 0000").at(1);
    this.#said = [];
    return this;
  }
}

const request = "> 0001000000";
const text = (s: string): Uint8Array => new TextEncoder().encode(s);

test("the request is repeated until the answer comes, which is asked for once", () => {
  const t = new Transcript();
  t.at(0).want("it asks at once", request);
  t.at(499).want("an answer takes a while");
  t.at(2999).want("at 0.5, 1, 1.5 and 2 s", request, request, request, request);
  t.at(4999).want("at 3 and 4 s", request, request);
  t.at(5000).want("after 5 s it gives up", "closed timeout");
});

test("the login is the first reliable message, and is repeated", () => {
  const t = new Transcript({ login: text("hi") });
  t.at(0, "03 61", "04 0000 61").want("a client that connects ignores everything else", request);
  t.at(10, "01 00 0000").want("the login follows at once", "connected", "> 0400006869");
  t.at(69).want("the answer took 10 ms, so the pause is the shortest one");
  t.at(70).want("repeated", "> 0400006869");
  t.at(189).want("the pauses double").at(190).want("repeated", "> 0400006869");
  t.at(300, "06 0000 00", "01 00 0000").want("an acknowledged command is done, and a late answer does nothing");
  t.at(3000).want("nothing is due");
});

test("results of a request", () => {
  new Transcript().at(0, "01 01").want("rejected", "closed rejected");
  new Transcript().at(0, "01 02").want("no common protocol", "closed protocol");
  new Transcript().at(0, "01 07").want("unknown results mean rejected", "closed rejected");
  new Transcript().at(0, "01 00 01 00").want("another protocol", "closed protocol");
  new Transcript().at(0, "01 00 00", "01").want("truncated answers are no answers", request);
});

test("a close before anything was acknowledged refuses the login", () => {
  const t = new Transcript({ login: text("hi") }).connect();
  t.at(20, "02").want("refused", "closed refused");
  t.at(5000, "03 61").want("nothing follows");
  new Transcript().connect().at(20, "02").want("there was no login", "closed peer");
  new Transcript({ login: text("hi") }).connect().at(50, "06 0000 00").at(100, "02").want("peer", "closed peer");
});

test("reliable commands are acknowledged at once, delivered once and in order", () => {
  const t = new Transcript().connect();
  t.at(10, "04 0100 62").want("a later one waits; it is acknowledged, because the edge sent it. A probe keeps the client heard", "> 06010000", "> 0a000000");
  t.at(15, "06 0000 00");
  t.at(20, "04 0000 61").want("both", "> 06000000", "message a", "message b");
  t.at(30, "04 0000 61", "04 0100 62").want("repeats are acknowledged again, not delivered", "> 06000000", "> 06010000");
  t.at(40, "04 1200 63").want("16 ahead is too far");
  t.at(50, "04 1100 63").want("15 ahead is not", "> 06110000");
  t.at(60, "04 ffff 63", "04 0200", "04 02").want("number 65535 does not exist; an empty or truncated command is damaged");
  assert.deepEqual([t.connection.stats.repeated, t.connection.stats.outside, t.connection.stats.malformed], [2, 2, 2]);
});

test("probes are invisible, long messages are joined", () => {
  const t = new Transcript().connect();
  t.at(10, "0a 0000 00").want("a probe", "> 06000000");
  t.at(20, "0a 0100 01 6161", "0a 0200 00 6262", "0a 0300 02 6363").want("three parts", "> 06010000", "> 06020000", "> 06030000", "message aabbcc");
  t.at(30, "0a 0400 03 64").want("a message of one part", "> 06040000", "message d");
  t.at(40, "0a 0500 02 65").want("the end of no message", "> 06050000");
});

test("messages of more than 1,357 bytes go in parts of 1,190", () => {
  const t = new Transcript().connect();
  t.connection.send(new Uint8Array(1357));
  t.connection.send(new Uint8Array(2400));
  t.at(2).want("whole, then three parts", "> 040000000000000000000000… 1360", "> 0a0100010000000000000000… 1194", "> 0a0200000000000000000000… 1194", "> 0a0300020000000000000000… 24");
  const mine = text("mine");
  t.connection.send(mine);
  mine.fill(0);
  t.at(3).want("a message is copied", "> 0404006d696e65");
  assert.throws(() => t.connection.send(new Uint8Array()), RangeError);
  assert.throws(() => t.connection.send(new Uint8Array((1 << 20) + 1)), RangeError);
});

test("ten commands are in flight, and 256 messages wait", () => {
  const t = new Transcript().connect();
  for (let i = 0; i < 256; i++) t.connection.send(Uint8Array.of(i));
  t.at(2);
  assert.equal(t.connection.stats.sent, 10, "ten commands");
  for (let i = 0; i < 10; i++) t.connection.send(Uint8Array.of(i));
  assert.throws(() => t.connection.send(Uint8Array.of(1)), /256 messages/);
  t.at(12, "06 0000 00");
  assert.equal(t.connection.stats.sent, 11, "an acknowledgement of the oldest makes room for one");
});

test("repeats come by the round trip, and later each time", () => {
  const t = new Transcript().connect();
  let number = 0;
  for (let now = 100; now < 3000; now += 100) { // a path of 40 ms
    t.at(now).connection.send(text("x"));
    t.at(now).at(now + 40, `06 ${hex(Uint8Array.of(number++, 0))} 00`);
  }
  t.at(3000).connection.send(text("y"));
  const times: number[] = [];
  for (let now = 3000; now < 5000; now++) {
    const sent = t.connection.stats.sent;
    t.at(now);
    if (t.connection.stats.sent > sent) times.push(now - 3000);
  }
  assert.deepEqual(times.slice(0, 7), [0, 80, 240, 400, 900, 1400, 1900],
    "mean 40 ms and two frames; a path that loses something is tried more often; 0.5 s when the edge has been silent for so long");
});

test("what waits for a lost command says nothing about the round trip", () => {
  const t = new Transcript().connect();
  for (let n = 0; n < 10; n++) {
    t.at(100 * n + 10).connection.send(text("x"));
    t.at(100 * n + 10).at(100 * n + 50, `06 ${hex(Uint8Array.of(n, 0))} 00`);
  }
  const before = t.connection.roundTrip;
  t.at(1000).connection.send(text("lost"));
  t.at(1000).at(1060);
  for (let n = 11; n < 15; n++) t.connection.send(text("y"));
  t.at(1060).at(1120, ...[10, 11, 12, 13, 14].map((n) => `06 ${hex(Uint8Array.of(n, 0))} 00`));
  assert.equal(t.connection.roundTrip, before, "an edge acknowledges in order");
});

test("a long message keeps below what an edge takes of a client", () => {
  const t = new Transcript().connect();
  t.connection.send(new Uint8Array(1 << 20));
  for (let now = 10, n = 0; now < 4000; now += 10) {
    const inFlight = t.at(now).connection.stats.sent - n;
    t.at(now, ...Array.from({ length: inFlight }, () => `06 ${hex(Uint8Array.of(n, n++ >> 8))} 00`));
  }
  const { sent } = t.connection.stats;
  assert.ok(1194 * sent > 4 * 52_000 && 1194 * sent < 5.2 * 56 * 1024, `${1194 * sent} bytes in 4 s, of which a second's worth was saved`);
});

test("an edge that acknowledges nothing for 10 s is gone, unless the owner stood still", () => {
  const t = new Transcript().connect();
  t.connection.send(text("x"));
  t.at(2).at(10_001);
  assert.equal(t.connection.phase, "established");
  t.at(10_003);
  assert.equal(t.connection.phase, "closed");

  const asleep = new Transcript().connect();
  asleep.connection.send(text("x"));
  asleep.at(2);
  asleep.now = 60_000;
  asleep.connection.advance(60_000);
  assert.equal(asleep.connection.phase, "established", "a laptop that slept asks again before it gives up");
  asleep.at(70_100);
  assert.equal(asleep.connection.phase, "closed");
});

test("over another transport everything in flight is due at once, and says nothing about the path", () => {
  const t = new Transcript().connect();
  t.connection.send(text("a"));
  t.at(10).want("sent", "> 04000061");
  t.at(60, "06 0000 00");
  const { roundTrip } = t.connection;
  t.connection.send(text("b"));
  t.connection.send(text("c"));
  t.at(100).want("sent", "> 04010062", "> 04020063");
  t.connection.resume(110);
  t.at(110).want("both again, the oldest twice", "> 04010062", "> 04010062", "> 04020063");
  t.at(112, "06 0100 00", "06 0200 00");
  assert.equal(t.connection.roundTrip, roundTrip, "these are no acknowledgements of first copies");
  t.connection.resume(200);
  t.at(200).want("a probe, where nothing is in flight", "> 0a030000");
});

test("a silent edge is asked after 5 s, and one that acknowledges nothing after 15 s", () => {
  const t = new Transcript().connect();
  t.at(5000).want("a probe", "> 0a000000");
  t.at(5050, "06 0000 00").want("it lives");
  for (let now = 6000; now < 20_000; now += 1000) t.at(now, "03 61");
  t.want("it says something, but that could be a stranger", ...Array<string>(14).fill("message a unreliable"));
  t.at(20_049).want("not yet").at(20_050).want("15 s after the acknowledgement", "> 0a010000");
});

test("while commands of the edge get lost, the client keeps itself heard", () => {
  const t = new Transcript().connect();
  t.at(10, "04 0000 61").at(100, "04 0000 61").want("the acknowledgement got lost", "> 06000000", "message a", "> 06000000", "> 0a000000");
  t.at(110, "06 0000 00").at(349).want("it is heard").at(350).want("250 ms after the last probe", "> 0a010000");
  t.at(360, "06 0100 00").at(2000, "06 0200 00").at(2010, "06 0300 00");
  const { sent } = t.connection.stats;
  t.at(6900);
  assert.equal(t.connection.stats.sent, sent, "two seconds later it is over");
});

test("the LinkUps of many states share the budget", () => {
  const t = new Transcript().connect();
  const offers = Array.from({ length: 300 }, (_, i) => `05 ${hex(Uint8Array.of(i, i >> 8))} ${hex(Uint8Array.of(i, 0x80 | (i >> 8)))} 01 0100 61 0100 01 00`);
  t.at(10, ...offers);
  const before = t.connection.stats.sent;
  t.at(262);
  assert.equal(t.connection.stats.sent - before, 8, "a few in each flush");
  t.at(1262);
  const { sent } = t.connection.stats;
  assert.ok(sent - before > 150 && sent - before < 350, `${sent - before} in a second, of which one second's worth was saved`);
});

const offer = "05 0000 0080 01 0500 746f776572 0200 03 0700 0b 0100 61"; // tower, read-only: uint16 7, string "a"

test("links: offer, update, down", () => {
  const t = new Transcript().connect();
  t.at(10, "09 01 0080 01 0000 0900").want("an update of an unknown link is dropped");
  t.at(20, offer).want("acknowledged, then up", "> 06000000", "> 070080", "linked tower");
  const tower = t.states.get("tower")!;
  assert.deepEqual([tower.get(0), tower.get(1), tower.writable], [7, "a", false]);
  t.at(30, "09 01 0080 02 0000 0900 0100 0100 62").want("two values", "changed tower 0=9", "changed tower 1=b");
  t.at(40, "09 01 0080 01 0000 0900").want("a value that came again is no change");
  t.at(50, "08 0080", "08 0080").want("down, once", "unlinked tower");
  assert.deepEqual([tower.linked, tower.get(0)], [false, 9], "its values stay");
  t.at(60, "05 0100 0510 01 0100 68 0000").want("an offer without values is a question, and any answer will do", "> 06010000", "> 080510");
  t.at(70, "05 0200 0680 01 0100 68 0100 26").want("an unknown type is damage, and is not acknowledged");
});

test("own states: offered with low LinkIds, and sent when they are up", () => {
  const t = new Transcript().connect();
  const layout = new Layout([typeNamed("uint8")]);
  const me = new State({ key: "me", message: text("me"), layout, values: [Uint8Array.of(3)], own: true, writable: true });
  t.connection.offer(me);
  t.at(10).want("LinkId 0, read-write", "> 05000000000002006d650100… 14");
  me.set(0, 4);
  t.at(20, "06 0000 00", "07 0000").want("the value that differs from the offer follows", "linked me", "> 0901000001000004");
  t.at(30, "07 0000").want("a repeated LinkUp does nothing");
});

test("own states: a refusal, the end, a LinkId of the edge that is in the way", () => {
  const t = new Transcript().connect();
  t.at(5, "05 0000 0000 01 0100 61 0100 01 00").want("the edge uses LinkId 0", "> 06000000", "> 070000", "linked a");
  const states = ["b", "c"].map((key) => new State({ key, message: text(key), layout: new Layout([typeNamed("uint8")]), values: [Uint8Array.of(3)], own: true, writable: true }));
  for (const state of states) t.connection.offer(state);
  t.at(10).want("so it offers 1 and 2", "> 050000010000010062010001… 13", "> 050100020000010063010001… 13");
  t.at(20, "08 0100", "07 0200").want("1 is refused, 2 is up", "unlinked b", "linked c");
  t.connection.withdraw(states[1]!);
  t.at(20).want("down", "unlinked c", "> 080200");
  t.at(90, "06 0000 00", "06 0100 00").want("and again", "> 080200");
  t.at(210).want("at 180 ms", "> 080200").at(300, "09 01 0000 01 0000 00").want("LinkUp goes again after 250 ms, until the edge sends values", "> 070000");
  t.at(4470).want("at 500 and 1500 ms", "> 080200", "> 080200");
  t.at(4600, "07 0200").want("an edge that repeats LinkUp has heard none of them", "> 080200");

});

/** The envelopes of commands, in the file that the Go codec is tested with, and what a connection does with them. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { CommandError, Commands, hello, helloPlain, parseAnswer, parseRaw, raw, requestByKey, requestByLink } from "../src/command.js";
import { hex, unhex } from "./bytes.js";

const utf8 = (s: string): Uint8Array => new TextEncoder().encode(s);
const text = (p: Uint8Array | undefined): string => new TextDecoder().decode(p);

const file = new URL("../../../../dnp/command/testdata/envelopes.hex", import.meta.url);
const vectors = new Map(readFileSync(file, "utf8").split("\n").filter((line) => line !== "" && !line.startsWith("#")).map((line) => {
  const [name, bytes] = line.split(":");
  return [name!, unhex(bytes!.replaceAll(" ", ""))];
}));
const vector = (name: string): Uint8Array => {
  const v = vectors.get(name);
  assert.ok(v, `the file has no ${name}`);
  return v;
};

const same = (got: Uint8Array, want: Uint8Array, why: string): void => assert.equal(hex(got), hex(want), why);

/** answer builds an answer of the edge. */
const answer = (id: number, code: number, body = ""): Uint8Array => Uint8Array.of(0xc5, 0x81, id & 0xff, id >> 8, code, ...utf8(body));

test("envelopes are those of the Go codec", () => {
  same(helloPlain, vector("hello"), "hello");
  same(hello, unhex("c5 00 646e702e636f6d6d616e642e7631 03000000"), "hello with capabilities");
  same(requestByKey(1, "door", "open", utf8("now")), vector("request key"), "request by key");
  same(requestByLink(65535, 0x8001, "hit", utf8("")), vector("request link"), "request by link");
  assert.deepEqual(parseAnswer(vector("answer")), { id: 1, code: "ok", body: utf8("opened") });
  assert.deepEqual(parseAnswer(vector("answer error")), { id: 258, code: "not_authorised", body: utf8("not_authorised") });
  assert.deepEqual(parseAnswer(vector("hello answer")), { id: 0, code: "ok", body: utf8("") });
  assert.deepEqual(parseAnswer(unhex("c5 81 0000 00 03000000")), { id: 0, code: "ok", body: Uint8Array.of(3, 0, 0, 0) });
  same(parseRaw(vector("raw"))!, Uint8Array.of(0xc5, 0x78), "raw");
  same(raw(Uint8Array.of(0xc5, 0x78)), vector("raw"), "raw");
  for (const [name, p] of vectors) {
    if (!name.startsWith("malformed")) continue;
    assert.equal(parseAnswer(p), undefined, name);
    assert.equal(parseRaw(p), undefined, name);
  }
});

/** A Desk is the commands of a connection whose edge is the test. */
class Desk {
  sent: Uint8Array[] = [];
  now = 0;
  readonly commands = new Commands((data) => this.sent.push(data), () => {}, false);

  ask(name: string, signal?: AbortSignal): Promise<string> {
    return this.commands.command(() => 7, name, utf8("b"), signal, () => this.now).then(text, (error: unknown) => {
      if (error instanceof CommandError) return error.code;
      return String(error);
    });
  }

  /** take returns what was sent since the last call. */
  take(): Uint8Array[] {
    this.commands.advance(this.now);
    const all = this.sent;
    this.sent = [];
    return all;
  }

  open(): void {
    void this.ask("first");
    this.take();
    assert.equal(this.commands.incoming(answer(0, 0)), undefined, "the answer to the hello is not for the application");
    assert.equal(this.take().length, 1, "the first request waits for the answer to the hello");
    this.commands.incoming(answer(1, 0));
  }
}

test("a command has one answer", async () => {
  const d = new Desk();
  const first = d.ask("open");
  assert.deepEqual(d.take(), [helloPlain], "the edge has to say first that it takes commands");
  assert.deepEqual(d.take(), [], "it says so once");
  assert.ok(d.commands.incoming(answer(1, 0, "x")), "before that, all messages are for the application");
  d.commands.incoming(answer(0, 0));
  assert.deepEqual(d.take().map(hex), [hex(requestByLink(1, 7, "open", utf8("b")))]);
  assert.equal(d.commands.incoming(answer(1, 0, "opened")), undefined);
  assert.equal(await first, "opened");
  assert.equal(d.commands.incoming(answer(1, 0, "again")), undefined, "a second answer means nothing");
  const second = d.ask("burn");
  d.take();
  d.commands.incoming(answer(2, 10, "stone"));
  assert.equal(await second, "failed");
  const third = d.ask("new");
  d.take();
  d.commands.incoming(answer(3, 200));
  assert.equal(await third, "failed", "a code of a later release is a failure");
});

test("messages of the application stay what they are", () => {
  const d = new Desk();
  const mark = Uint8Array.of(0xc5, 1, 2);
  assert.equal(d.commands.incoming(mark), mark, "without a hello there are no envelopes");
  assert.equal(d.commands.outgoing(mark), mark, "without a hello there are no envelopes");
  assert.ok(d.commands.incoming(answer(0, 0)), "nor answers");
  d.open();
  const wrapped = d.commands.outgoing(mark);
  same(wrapped, Uint8Array.of(0xc5, 2, 0xc5, 1, 2), "it travels in an envelope");
  same(d.commands.incoming(wrapped)!, mark, "it comes out of the envelope");
  const plain = utf8("plain");
  assert.equal(d.commands.outgoing(plain), plain);
  assert.equal(d.commands.incoming(plain), plain);
});

test("commands beyond the bounds wait", async () => {
  const d = new Desk();
  d.open();
  const all = Array.from({ length: 20 }, () => d.ask("x"));
  assert.equal(d.take().length, 16, "16 may have no answer");
  for (let id = 3; id <= 6; id++) d.commands.incoming(answer(id, 0));
  assert.equal(d.take().length, 4);
  for (let id = 7; id <= 65; id++) {
    d.commands.incoming(answer(id, 0));
    void d.ask("x");
    d.take();
  }
  for (let id = 66; id <= 120; id++) d.commands.incoming(answer(id, 0)); // of requests that must not have been sent
  void d.ask("x");
  assert.deepEqual(d.take(), [], "request 2 has no answer, so 66 would make it too old to be answered");
  d.commands.incoming(answer(2, 0, "late"));
  assert.equal(await all[0], "late");
  assert.ok(d.take().length > 0, "then the others follow");
});

test("a command can be given up", async () => {
  const d = new Desk();
  d.open();
  const abort = new AbortController();
  const sent = d.ask("x", abort.signal);
  d.take();
  const waits = d.ask("y", abort.signal);
  abort.abort(new Error("enough"));
  assert.equal(await sent, "Error: enough");
  assert.equal(await waits, "Error: enough");
  assert.deepEqual(d.take(), [], "what waited is not sent");
  for (let i = 0; i < 20; i++) void d.ask("z");
  assert.equal(d.take().length, 15, "what was sent counts until it has an answer");
  d.now = 61_000;
  assert.equal(d.take().length, 1, "or for a minute");
});

test("the end of the connection is the end of its commands", async () => {
  const d = new Desk();
  d.open();
  const sent = d.ask("x");
  d.take();
  const waits = d.ask("y");
  d.commands.end();
  assert.deepEqual([await sent, await waits], ["ended", "ended"]);
});

test("what cannot be sent is refused at once", async () => {
  const d = new Desk();
  for (const name of ["", "x".repeat(65)]) assert.match(await d.ask(name), /RangeError/);
  const long = d.commands.command(() => 1, "x", new Uint8Array(60_001), undefined, () => 0);
  await assert.rejects(long, RangeError);
  void Array.from({ length: 256 }, () => d.ask("x"));
  assert.equal(await d.ask("x"), "busy", "256 may wait");
});

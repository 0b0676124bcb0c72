/** The transports of browsers, with fakes of what a browser has. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseInfo } from "../src/info.js";
import { parseClosing, parseGreeting, retryAfter } from "../src/session.js";
import { DialError, withScheme, type Transport } from "../src/transport.js";
import { dialWebSocket } from "../src/websocket.js";
import { dialWebTransport, Frames } from "../src/webtransport.js";
import { hex, random, seeds, unhex } from "./bytes.js";

const signal = new AbortController().signal;

/** heard collects what a transport says. */
function heard(transport: Transport): string[] {
  const said: string[] = [];
  transport.onDatagram = (p) => said.push(hex(p));
  transport.onClose = ({ code, reason }) => said.push(`closed: ${code} ${reason}`);
  return said;
}

const token = "0123456789abcdef".repeat(4);
const greeting = (resumed: boolean): string => JSON.stringify({ token, resumed });

class FakeWebSocket {
  static last: FakeWebSocket;
  static protocol = "dnp.v1";
  static first: unknown; // the first message of the server
  readonly protocol = FakeWebSocket.protocol;
  readonly sent: string[] = [];
  binaryType = "blob";
  readyState = 1;
  bufferedAmount = 0;
  onopen: (() => void) | null = null;
  onclose: ((e: { code: number; reason: string }) => void) | null = null;
  onmessage: ((e: { data: unknown }) => void) | null = null;

  constructor(readonly url: URL, readonly subprotocols: string[]) {
    FakeWebSocket.last = this;
    queueMicrotask(() => {
      this.onopen?.();
      if (FakeWebSocket.first !== undefined) this.onmessage?.({ data: FakeWebSocket.first });
    });
  }

  send(p: Uint8Array): void {
    this.sent.push(hex(p));
  }

  close(): void {
    this.readyState = 3;
  }
}

/** dialFake opens a WebSocket to a server that says this first. */
function dialFake(url: string, first: unknown, resume?: string): Promise<Transport> {
  FakeWebSocket.first = first;
  return dialWebSocket(new URL(url), { signal, resume, WebSocket: FakeWebSocket as unknown as typeof WebSocket });
}

test("WebSocket: a greeting, and then one binary message is one datagram", async () => {
  const transport = await dialFake("https://edge.example:3480", greeting(false));
  const socket = FakeWebSocket.last;
  assert.deepEqual([socket.url.href, socket.subprotocols, socket.binaryType], ["wss://edge.example:3480/dnp", ["dnp.v1"], "arraybuffer"]);
  assert.deepEqual(transport.session, { token, resumed: false });
  const said = heard(transport);
  transport.send(unhex("0001000000"));
  socket.onmessage!({ data: unhex("01000000").buffer });
  socket.onmessage!({ data: "text" });
  socket.bufferedAmount = 1 << 20;
  transport.send(unhex("03 61"));
  assert.deepEqual(socket.sent, ["0001000000"], "a full buffer drops datagrams, which the protocol repeats");
  socket.onclose!({ code: 1012, reason: "leaving; retry-after=0" });
  assert.deepEqual(said, ["01000000", "closed: 1012 leaving; retry-after=0"]);
});

test("WebSocket: the token of a session is a subprotocol, and in no URL", async () => {
  const transport = await dialFake("ws://localhost", greeting(true), token);
  assert.deepEqual([FakeWebSocket.last.url.href, FakeWebSocket.last.subprotocols], ["ws://localhost/dnp", ["dnp.v1", `dnp.resume.${token}`]]);
  assert.deepEqual(transport.session, { token, resumed: true });
});

test("WebSocket: a server without the subprotocol or the greeting is none of ours", async () => {
  FakeWebSocket.protocol = "";
  await assert.rejects(dialFake("ws://localhost/other", undefined), /does not speak dnp.v1/);
  FakeWebSocket.protocol = "dnp.v1";
  assert.equal(FakeWebSocket.last.url.href, "ws://localhost/other");
  assert.equal(withScheme(new URL("udp://h:1"), "https:").href, "https://h:1/dnp");
  for (const first of [unhex("01000000").buffer, "hello", greeting(true).replace("0", "G")]) {
    await assert.rejects(dialFake("ws://localhost", first), /does not greet/);
    assert.equal(FakeWebSocket.last.readyState, 3, "the client does not leave it open");
  }
});

test("WebSocket: an edge that closes before its greeting says why", async () => {
  const dialled = dialFake("ws://localhost", undefined);
  await new Promise((resolve) => setImmediate(resolve));
  FakeWebSocket.last.onclose!({ code: 1013, reason: "full; retry-after=1000" });
  await assert.rejects(dialled, (error) => error instanceof DialError && error.info.code === 1013 && error.info.reason === "full; retry-after=1000");
});

test("greetings and reasons", () => {
  assert.deepEqual(parseGreeting(`{"token":"${token}","resumed":true,"later":1}`), { token, resumed: true });
  assert.deepEqual(parseGreeting(`{"token":"${token}"}`), { token, resumed: false });
  for (const text of ["", "null", "7", "[]", "{}", `{"token":7}`, `{"token":"${token}0"}`, `{"token":"${token.toUpperCase()}"}`, `{"token":"${token}"}${" ".repeat(200)}`]) {
    assert.equal(parseGreeting(text), undefined, text);
  }
  assert.deepEqual(parseClosing('{"code":4000,"reason":"unknown"}'), { code: 4000, reason: "unknown" });
  for (const text of ["", "{", "null", '{"code":"1000","reason":"over"}', '{"code":1000}', `{"code":1000,"reason":"${"x".repeat(256)}"}`]) {
    assert.equal(parseClosing(text), undefined, text);
  }
  const reasons = { "full; retry-after=1000": 1000, "leaving; retry-after=0": 0, "draining;retry-after=999999999": 60_000 };
  for (const [reason, ms] of Object.entries(reasons)) assert.equal(retryAfter(reason), ms, reason);
  for (const reason of ["", "full", "retry-after=5", "full; retry-after=-5", "full; retry-after=5s", "full; retry-after="]) {
    assert.equal(retryAfter(reason), undefined, reason);
  }
});

/** sink returns a stream that writes what it gets to a list. */
const sink = (list: string[]): WritableStream<Uint8Array> => new WritableStream({ write: (p) => void list.push(hex(p)) });

class FakeWebTransport {
  static last: FakeWebTransport;
  readonly sent: string[] = [];
  readonly streamed: string[] = [];
  readonly ready = Promise.resolve();
  end!: (info: { closeCode: number; reason: string }) => void;
  readonly closed = new Promise<{ closeCode: number; reason: string }>((resolve) => (this.end = resolve));
  incoming!: ReadableStreamDefaultController<Uint8Array>;
  stream!: ReadableStreamDefaultController<Uint8Array>;
  readonly datagrams = {
    maxDatagramSize: 100,
    incomingHighWaterMark: 1,
    writable: sink(this.sent),
    readable: new ReadableStream<Uint8Array>({ start: (c) => void (this.incoming = c) }),
  };

  constructor(readonly url: string, readonly options: unknown) {
    FakeWebTransport.last = this;
  }

  async createBidirectionalStream(): Promise<unknown> {
    return { writable: sink(this.streamed), readable: new ReadableStream<Uint8Array>({ start: (c) => void (this.stream = c) }) };
  }

  close(info = { closeCode: 0, reason: "" }): void {
    this.end(info);
  }
}

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

/** framed returns a frame of the stream. */
const framed = (p: Uint8Array): Uint8Array => Uint8Array.of(p.length, p.length >> 8, ...p);

/** withBrowser runs something where there is a WebTransport, and an edge that says this about itself. */
async function withBrowser(info: unknown, run: (asked: string[]) => Promise<void>): Promise<void> {
  const { fetch } = globalThis;
  const asked: string[] = [];
  Object.assign(globalThis, {
    WebTransport: FakeWebTransport,
    fetch: async (url: URL) => {
      asked.push(url.href);
      if (info === undefined) throw new TypeError("no answer");
      return new Response(JSON.stringify(info));
    },
  });
  try {
    await run(asked);
  } finally {
    delete (globalThis as { WebTransport?: unknown }).WebTransport;
    globalThis.fetch = fetch;
  }
}

test("WebTransport: a greeting, datagrams, and a stream for what does not fit", () => withBrowser(undefined, async (asked) => {
  const hashes = { serverCertificateHashes: [] };
  const dialled = dialWebTransport(new URL("wss://edge.example:3480"), { signal, webTransport: hashes });
  await settle();
  const session = FakeWebTransport.last;
  session.stream.enqueue(framed(utf8(greeting(false))));
  const transport = await dialled;
  const said = heard(transport);
  assert.deepEqual([session.url, session.options, transport.maxDatagramSize], ["https://edge.example:3480/dnp", hashes, 100]);
  assert.deepEqual([transport.session, asked], [{ token, resumed: false }, []], "the application knows the certificate");
  assert.ok(session.datagrams.incomingHighWaterMark >= 1000, "browsers drop what the page has not read");
  transport.send(unhex("0001000000"));
  transport.send(new Uint8Array(101).fill(7));
  session.incoming.enqueue(unhex("01000000"));
  session.stream.enqueue(unhex("0000 0200 03"));
  session.stream.enqueue(unhex("61 0200 0362"));
  await settle();
  assert.deepEqual(session.sent, ["0001000000"]);
  assert.deepEqual(session.streamed, ["0000", `6500${"07".repeat(101)}`], "an empty frame opens the stream");
  assert.deepEqual(said.sort(), ["01000000", "0361", "0362"]);
  session.end({ closeCode: 1012, reason: "leaving" });
  await settle();
  assert.deepEqual(said.slice(3), ["closed: 1012 leaving"]);
}));

test("WebTransport: the last frame tells why the edge ends the session, once", () => withBrowser(undefined, async () => {
  const dialled = dialWebTransport(new URL("https://edge.example"), { signal });
  await settle();
  const session = FakeWebTransport.last;
  session.stream.enqueue(framed(utf8(greeting(false))));
  const said = heard(await dialled);
  session.stream.enqueue(framed(utf8('{"neither":"datagram nor closing"}')));
  session.stream.enqueue(framed(utf8('{"code":1013,"reason":"full; retry-after=1000"}')));
  assert.deepEqual(await session.closed, { closeCode: 1000, reason: "" }, "the client closes it");
  await settle();
  assert.deepEqual(said.slice(1), ["closed: 1013 full; retry-after=1000"]);
}));

test("WebTransport: the first frame is the token of the session, and what was sent goes out before the end", () => withBrowser(undefined, async () => {
  const dialled = dialWebTransport(new URL("https://edge.example"), { signal, resume: token });
  await settle();
  const session = FakeWebTransport.last;
  session.stream.enqueue(framed(utf8(greeting(true))));
  const transport = await dialled;
  assert.deepEqual([session.streamed, transport.session], [[`4000${hex(utf8(token))}`], { token, resumed: true }]);
  transport.send(unhex("02"));
  transport.close();
  assert.deepEqual(await session.closed, { closeCode: 1000, reason: "" });
  assert.deepEqual(session.sent, ["02"]);
}));

test("WebTransport: an attempt ends with the edge, with a bad greeting, or in time", () => withBrowser(undefined, async () => {
  const dial = async (then: (session: FakeWebTransport) => void, abort = new AbortController()) => {
    const dialled = dialWebTransport(new URL("https://edge.example"), { signal: abort.signal });
    await settle();
    then(FakeWebTransport.last);
    return dialled;
  };
  await assert.rejects(dial((s) => s.end({ closeCode: 1013, reason: "full" })), (error) => error instanceof DialError && error.info.code === 1013);
  await assert.rejects(dial((s) => s.stream.enqueue(framed(utf8("hello")))), /does not greet/);
  const abort = new AbortController();
  await assert.rejects(dial(() => abort.abort(), abort), /no answer in time/);
  await FakeWebTransport.last.closed;
}));

const hash = "ab".repeat(32);

test("WebTransport: the edge tells its port and its certificates", async () => {
  const infos: [url: string, info: unknown, dialled: string | RegExp, hashes?: string[]][] = [
    ["http://127.0.0.1:3480/", { webtransport: { port: 3481, path: "/dnp", certificateHashes: [hash] } }, "https://127.0.0.1:3481/dnp", [hash]],
    ["wss://edge.example/game", { webtransport: { port: 443, path: "/game" } }, "https://edge.example/game"],
    ["wss://edge.example", undefined, "https://edge.example/dnp"],
    ["ws://edge.example", undefined, /does not tell its certificate/],
    ["wss://edge.example", { protocols: ["dnp.v1"] }, /has no WebTransport/],
  ];
  for (const [url, info, want, hashes] of infos) {
    await withBrowser(info, async (asked) => {
      const dialled = dialWebTransport(new URL(url), { signal });
      dialled.catch(() => {});
      await settle();
      await settle();
      const path = url.endsWith("game") ? "/game/info" : "/dnp/info";
      assert.deepEqual(asked.map((a) => new URL(a).pathname), [path]);
      assert.match(asked[0]!, url.startsWith("ws:") || url.startsWith("http:") ? /^http:/ : /^https:/);
      if (want instanceof RegExp) return assert.rejects(dialled, want);
      FakeWebTransport.last.stream.enqueue(framed(utf8(greeting(false))));
      await dialled;
      const options = FakeWebTransport.last.options as WebTransportOptions | undefined;
      assert.equal(FakeWebTransport.last.url, want);
      assert.deepEqual(options?.serverCertificateHashes?.map((h) => [h.algorithm, hex(h.value as Uint8Array)]), hashes?.map((h) => ["sha-256", h]));
    });
  }
});

test("what an edge says about its listeners, or does not", () => {
  const info = (webtransport: unknown) => parseInfo(JSON.stringify({ webtransport }));
  assert.deepEqual(info({ port: 1, path: "/dnp" }), { port: 1, path: "/dnp", hashes: undefined });
  assert.equal(parseInfo("{}"), null);
  assert.equal(parseInfo(`{}${" ".repeat(5000)}`), undefined);
  assert.throws(() => parseInfo("<html>"));
  for (const bad of [{}, { port: 0, path: "/" }, { port: 65_536, path: "/" }, { port: "1", path: "/" }, { port: 1, path: "dnp" }, { port: 1 },
    { port: 1, path: "/", certificateHashes: "ab" }, { port: 1, path: "/", certificateHashes: ["ab"] }, { port: 1, path: "/", certificateHashes: Array(17).fill(hash) }]) {
    assert.equal(info(bad), undefined, JSON.stringify(bad));
  }
});

test("frames are found however the stream is cut", () => {
  for (const seed of seeds(50)) {
    const chance = random(seed);
    const datagrams = Array.from({ length: 20 }, () => new Uint8Array(Math.floor(chance() * (chance() < 0.1 ? 65_535 : 50))).fill(Math.floor(chance() * 256)));
    const stream = new Uint8Array(datagrams.reduce((n, d) => n + 2 + d.length, 0));
    let at = 0;
    for (const d of datagrams) {
      stream.set([d.length, d.length >> 8], at);
      stream.set(d, at + 2);
      at += 2 + d.length;
    }
    const got: string[] = [];
    const frames = new Frames((d) => got.push(hex(d)));
    for (let cut = 0; cut < stream.length; ) {
      const size = 1 + Math.floor(chance() * (chance() < 0.5 ? 3 : 9000));
      frames.push(stream.subarray(cut, cut + size));
      cut += size;
    }
    assert.deepEqual(got, datagrams.filter((d) => d.length > 0).map(hex), `SEED=${seed}`);
  }
});

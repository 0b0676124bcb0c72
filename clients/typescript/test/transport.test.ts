/** The transports of browsers, with fakes of what a browser has. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { withScheme, type Transport } from "../src/transport.js";
import { dialWebSocket } from "../src/websocket.js";
import { dialWebTransport, Frames } from "../src/webtransport.js";
import { hex, random, seeds, unhex } from "./bytes.js";

const signal = new AbortController().signal;

/** heard collects what a transport says. */
function heard(transport: Transport): string[] {
  const said: string[] = [];
  transport.onDatagram = (p) => said.push(hex(p));
  transport.onClose = (reason) => said.push(`closed: ${reason}`);
  return said;
}

class FakeWebSocket {
  static last: FakeWebSocket;
  static protocol = "dnp.v1";
  readonly protocol = FakeWebSocket.protocol;
  readonly sent: string[] = [];
  binaryType = "blob";
  readyState = 1;
  bufferedAmount = 0;
  onopen = () => {};
  onclose: ((e: { code: number; reason: string }) => void) | null = null;
  onmessage = (_e: { data: unknown }) => {};

  constructor(readonly url: URL, readonly subprotocol: string) {
    FakeWebSocket.last = this;
    queueMicrotask(() => this.onopen());
  }

  send(p: Uint8Array): void {
    this.sent.push(hex(p));
  }

  close(): void {
    this.readyState = 3;
  }
}

test("WebSocket: one binary message is one datagram", async () => {
  const transport = await dialWebSocket(new URL("https://edge.example:3480"), { signal, WebSocket: FakeWebSocket as unknown as typeof WebSocket });
  const socket = FakeWebSocket.last;
  assert.deepEqual([socket.url.href, socket.subprotocol, socket.binaryType], ["wss://edge.example:3480/dnp", "dnp.v1", "arraybuffer"]);
  const said = heard(transport);
  transport.send(unhex("0001000000"));
  socket.onmessage({ data: unhex("01000000").buffer });
  socket.onmessage({ data: "text" });
  socket.bufferedAmount = 1 << 20;
  transport.send(unhex("03 61"));
  assert.deepEqual(socket.sent, ["0001000000"], "a full buffer drops datagrams, which the protocol repeats");
  socket.onclose!({ code: 1001, reason: "" });
  assert.deepEqual(said, ["01000000", "closed: closed with code 1001"]);
});

test("WebSocket: a server without the subprotocol is none of ours", async () => {
  FakeWebSocket.protocol = "";
  await assert.rejects(dialWebSocket(new URL("ws://localhost/other"), { signal, WebSocket: FakeWebSocket as unknown as typeof WebSocket }), /does not speak dnp.v1/);
  FakeWebSocket.protocol = "dnp.v1";
  assert.equal(FakeWebSocket.last.url.href, "ws://localhost/other");
  assert.equal(withScheme(new URL("udp://h:1"), "https:").href, "https://h:1/dnp");
});

/** sink returns a stream that writes what it gets to a list. */
const sink = (list: string[]): WritableStream<Uint8Array> => new WritableStream({ write: (p) => void list.push(hex(p)) });

class FakeWebTransport {
  static last: FakeWebTransport;
  readonly sent: string[] = [];
  readonly streamed: string[] = [];
  readonly ready = Promise.resolve();
  end!: (info: { reason: string }) => void;
  readonly closed = new Promise<{ reason: string }>((resolve) => (this.end = resolve));
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

  close(): void {
    this.end({ reason: "closed here" });
  }
}

test("WebTransport: datagrams, and a stream for what does not fit", async () => {
  (globalThis as { WebTransport?: unknown }).WebTransport = FakeWebTransport;
  const hashes = { serverCertificateHashes: [] };
  const transport = await dialWebTransport(new URL("wss://edge.example:3480"), { signal, webTransport: hashes });
  delete (globalThis as { WebTransport?: unknown }).WebTransport;
  const session = FakeWebTransport.last;
  const said = heard(transport);
  assert.deepEqual([session.url, session.options, transport.maxDatagramSize], ["https://edge.example:3480/dnp", hashes, 100]);
  assert.ok(session.datagrams.incomingHighWaterMark >= 1000, "browsers drop what the page has not read");
  transport.send(unhex("0001000000"));
  transport.send(new Uint8Array(101).fill(7));
  session.incoming.enqueue(unhex("01000000"));
  session.stream.enqueue(unhex("0000 0200 03"));
  session.stream.enqueue(unhex("61 0200 0362"));
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(session.sent, ["0001000000"]);
  assert.deepEqual(session.streamed, ["0000", `6500${"07".repeat(101)}`], "an empty frame opens the stream");
  assert.deepEqual(said, ["01000000", "0361", "0362"]);
  session.end({ reason: "drained" });
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(said.slice(3), ["closed: drained"]);
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

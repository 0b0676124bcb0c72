import { concat } from "./bytes.js";
import { webTransportInfo } from "./info.js";
import { parseClosing, parseGreeting } from "./session.js";
import { bufferMax, DialError, isPlain, lost, withScheme, type CloseInfo, type DialOptions, type Session, type Transport } from "./transport.js";

/** Datagrams that wait for the page at most. Browsers keep one unless they are told, and drop the rest. */
const incomingMax = 1_024;
const frameMax = 65_535;

/** The first byte of JSON, with which no datagram of DNP begins. */
const brace = 0x7b;

/**
 * dialWebTransport opens a WebTransport. A datagram that fits is one datagram of QUIC; what does not fit
 * goes, in both directions, over one bidirectional stream, with a u16 length (little endian) before each.
 * The first frame of the client is the token of the session to continue, or empty; that of the edge is its
 * greeting, and its last one may tell why it ends the session.
 */
export async function dialWebTransport(url: URL, options: DialOptions): Promise<Transport> {
  if (!globalThis.WebTransport) throw new Error("there is no WebTransport here");
  const [to, webTransport] = await target(url, options.webTransport);
  if (options.signal.aborted) throw new Error(`open ${to}: no answer in time`);
  const connection = new WebTransport(to.href, webTransport);
  const abort = () => connection.close();
  options.signal.addEventListener("abort", abort, { once: true });
  connection.datagrams.incomingHighWaterMark = incomingMax;
  connection.closed.catch(() => {}); // ready fails for the same reason
  try {
    await connection.ready;
    const transport = new WebTransportTransport(connection, await connection.createBidirectionalStream(), options.resume);
    await transport.greeted();
    return transport;
  } catch (error) {
    connection.close();
    throw options.signal.aborted ? new Error(`open ${to}: no answer in time`) : error;
  } finally {
    options.signal.removeEventListener("abort", abort);
  }
}

/** target returns where to dial, and with which options. Without options the edge is asked for its port and its certificates. */
async function target(url: URL, options: WebTransportOptions | undefined): Promise<[URL, WebTransportOptions | undefined]> {
  const to = withScheme(url, "https:");
  if (options) return [to, options];
  const info = await webTransportInfo(url);
  if (info === null) throw new Error(`open ${to}: the edge has no WebTransport`);
  if (info === undefined) {
    if (isPlain(url)) throw new Error(`open ${to}: the edge does not tell its certificate`);
    return [to, undefined];
  }
  to.port = String(info.port);
  to.pathname = info.path;
  const serverCertificateHashes = info.hashes?.map((value) => ({ algorithm: "sha-256", value: value as Uint8Array<ArrayBuffer> }));
  return [to, serverCertificateHashes && { serverCertificateHashes }];
}

/** Newer browsers have createWritable, older ones writable. */
type Outgoing = { writable?: WritableStream<Uint8Array>; createWritable?: () => WritableStream<Uint8Array> };

class WebTransportTransport implements Transport {
  readonly maxDatagramSize: number;
  session: Session | undefined;
  onDatagram: (datagram: Uint8Array) => void = () => {};
  onClose: (info: CloseInfo) => void = () => {};
  readonly #datagrams: WritableStreamDefaultWriter<Uint8Array>;
  readonly #stream: WritableStreamDefaultWriter<Uint8Array>;
  readonly #readable: ReadableStream<Uint8Array>;
  #waiting = 0; // bytes

  constructor(private readonly connection: WebTransport, stream: WebTransportBidirectionalStream, resume: string | undefined) {
    const outgoing = connection.datagrams as unknown as Outgoing;
    this.maxDatagramSize = connection.datagrams.maxDatagramSize;
    this.#datagrams = (outgoing.createWritable?.() ?? outgoing.writable!).getWriter();
    this.#stream = stream.writable.getWriter();
    this.#readable = stream.readable;
    this.#frame(new TextEncoder().encode(resume ?? "")); // the edge hears of a stream when something is on it
  }

  /** greeted reads the greeting, and from then on whatever comes. */
  greeted(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.onClose = (info) => reject(new DialError(info.reason || `closed with code ${info.code}`, info));
      this.connection.closed.then(
        ({ closeCode, reason }) => this.onClose({ code: closeCode ?? lost, reason: reason ?? "" }),
        (error: unknown) => this.onClose({ code: lost, reason: String(error) }),
      );
      const frames = new Frames((frame) => {
        const text = frame[0] === brace ? new TextDecoder().decode(frame) : "";
        const info = parseClosing(text);
        if (info) return this.#end(info);
        if (this.session) return this.onDatagram(frame);
        this.session = parseGreeting(text);
        if (!this.session) return reject(new Error("the server does not greet as an edge does"));
        resolve();
        void pump(this.connection.datagrams.readable, (datagram) => this.onDatagram(datagram));
      });
      void pump(this.#readable, (chunk) => frames.push(chunk));
    });
  }

  send(datagram: Uint8Array): void {
    if (datagram.length <= this.connection.datagrams.maxDatagramSize) this.#write(this.#datagrams, datagram);
    else if (datagram.length <= frameMax) this.#frame(datagram);
  }

  #frame(p: Uint8Array): void {
    this.#write(this.#stream, concat([Uint8Array.of(p.length, p.length >> 8), p]));
  }

  #write(writer: WritableStreamDefaultWriter<Uint8Array>, p: Uint8Array): void {
    if (this.#waiting + p.length > bufferMax) return;
    this.#waiting += p.length;
    const written = () => {
      this.#waiting -= p.length;
    };
    writer.write(p).then(written, written); // a failure ends the session, which closed tells
  }

  /** end ends the transport as the edge asks. */
  #end(info: CloseInfo): void {
    const { onClose } = this;
    this.close();
    onClose(info);
  }

  close(): void {
    this.onClose = () => {};
    const close = () => this.connection.close({ closeCode: 1000, reason: "" });
    this.#datagrams.close().then(close, close); // what was sent before goes out first
  }
}

/** pump reads a stream to its end. */
async function pump(readable: ReadableStream<Uint8Array>, take: (chunk: Uint8Array) => void): Promise<void> {
  const reader = readable.getReader();
  try {
    for (let r; !(r = await reader.read()).done; ) take(r.value);
  } catch {
    // The session ended, which closed tells.
  }
}

/** Frames takes the bytes of a stream and finds the datagrams in them. */
export class Frames {
  readonly #p = new Uint8Array(2 + frameMax);
  #size = 0; // bytes of the frame under way

  constructor(private readonly take: (datagram: Uint8Array) => void) {}

  push(chunk: Uint8Array): void {
    for (let at = 0; at < chunk.length; ) {
      const length = this.#size < 2 ? 0 : this.#p[0]! | (this.#p[1]! << 8);
      const part = chunk.subarray(at, at + 2 + length - this.#size);
      this.#p.set(part, this.#size);
      this.#size += part.length;
      at += part.length;
      if (this.#size >= 2) this.#finish();
    }
  }

  #finish(): void {
    const length = this.#p[0]! | (this.#p[1]! << 8);
    if (this.#size < 2 + length) return;
    this.#size = 0;
    if (length > 0) this.take(this.#p.subarray(2, 2 + length));
  }
}

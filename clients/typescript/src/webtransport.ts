import { bufferMax, withScheme, type DialOptions, type Transport } from "./transport.js";

/** Datagrams that wait for the page at most. Browsers keep one unless they are told, and drop the rest. */
const incomingMax = 1_024;
const frameMax = 65_535;

/**
 * dialWebTransport opens a WebTransport. A datagram that fits is one datagram of QUIC; what does not fit
 * goes, in both directions, over one bidirectional stream, with a u16 length (little endian) before each.
 */
export async function dialWebTransport(url: URL, options: DialOptions): Promise<Transport> {
  if (!globalThis.WebTransport) throw new Error("there is no WebTransport here");
  const session = new WebTransport(withScheme(url, "https:").href, options.webTransport);
  const abort = () => session.close();
  options.signal.addEventListener("abort", abort, { once: true });
  session.datagrams.incomingHighWaterMark = incomingMax;
  session.closed.catch(() => {}); // ready fails for the same reason
  await session.ready;
  const stream = await session.createBidirectionalStream();
  options.signal.removeEventListener("abort", abort);
  return new WebTransportTransport(session, stream);
}

/** Newer browsers have createWritable, older ones writable. */
type Outgoing = { writable?: WritableStream<Uint8Array>; createWritable?: () => WritableStream<Uint8Array> };

class WebTransportTransport implements Transport {
  readonly maxDatagramSize: number;
  onDatagram: (datagram: Uint8Array) => void = () => {};
  onClose: (reason: string) => void = () => {};
  readonly #datagrams: WritableStreamDefaultWriter<Uint8Array>;
  readonly #stream: WritableStreamDefaultWriter<Uint8Array>;
  #waiting = 0; // bytes

  constructor(private readonly connection: WebTransport, stream: WebTransportBidirectionalStream) {
    const outgoing = connection.datagrams as unknown as Outgoing;
    this.maxDatagramSize = connection.datagrams.maxDatagramSize;
    this.#datagrams = (outgoing.createWritable?.() ?? outgoing.writable!).getWriter();
    this.#stream = stream.writable.getWriter();
    this.#write(this.#stream, new Uint8Array(2)); // an empty frame: the edge hears of a stream when something is on it
    const closed = (reason: unknown) => this.onClose(String(reason));
    connection.closed.then(({ reason }) => closed(reason || "closed"), closed);
    void pump(connection.datagrams.readable, (datagram) => this.onDatagram(datagram));
    const frames = new Frames((datagram) => this.onDatagram(datagram));
    void pump(stream.readable, (chunk) => frames.push(chunk));
  }

  send(datagram: Uint8Array): void {
    if (datagram.length <= this.connection.datagrams.maxDatagramSize) {
      this.#write(this.#datagrams, datagram);
    } else if (datagram.length <= frameMax) {
      const frame = new Uint8Array(2 + datagram.length);
      frame[0] = datagram.length;
      frame[1] = datagram.length >> 8;
      frame.set(datagram, 2);
      this.#write(this.#stream, frame);
    }
  }

  #write(writer: WritableStreamDefaultWriter<Uint8Array>, p: Uint8Array): void {
    if (this.#waiting + p.length > bufferMax) return;
    this.#waiting += p.length;
    const written = () => {
      this.#waiting -= p.length;
    };
    writer.write(p).then(written, written); // a failure ends the session, which closed tells
  }

  close(): void {
    this.onClose = () => {};
    this.connection.close();
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

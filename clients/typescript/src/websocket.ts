import { parseGreeting } from "./session.js";
import { bufferMax, DialError, isPlain, withScheme, type CloseInfo, type DialOptions, type Session, type Transport } from "./transport.js";

const subprotocol = "dnp.v1";

/** A token travels as a second subprotocol: browsers send no other header, and URLs end up in logs. */
const resumeProtocol = "dnp.resume.";

/**
 * dialWebSocket opens a WebSocket. The first message is the edge's greeting, as text. Each binary message is
 * one datagram, and none is lost or reordered: those behind a lost packet wait for its repetition.
 */
export async function dialWebSocket(url: URL, options: DialOptions): Promise<Transport> {
  const WebSocketClass = options.WebSocket ?? globalThis.WebSocket;
  if (!WebSocketClass) throw new Error("there is no WebSocket here; pass one in the options");
  const to = withScheme(url, isPlain(url) ? "ws:" : "wss:");
  const resume = options.resume === undefined ? [] : [resumeProtocol + options.resume];
  const socket = new WebSocketClass(to, [subprotocol, ...resume]);
  socket.binaryType = "arraybuffer";
  return greeted(socket, options.signal);
}

/** greeted waits for the greeting. */
function greeted(socket: WebSocket, signal: AbortSignal): Promise<Transport> {
  return new Promise((resolve, reject) => {
    const fail = (reason: string, info?: CloseInfo) => {
      socket.onopen = socket.onclose = socket.onmessage = null;
      socket.close();
      const what = `open ${socket.url}: ${reason}`;
      reject(info ? new DialError(what, info) : new Error(what));
    };
    socket.onopen = () => {
      if (socket.protocol !== subprotocol) fail(`the server does not speak ${subprotocol}`);
    };
    socket.onmessage = (e: MessageEvent<unknown>) => {
      const session = typeof e.data === "string" ? parseGreeting(e.data) : undefined;
      if (session) resolve(new WebSocketTransport(socket, session)); // at once: more messages may follow in this turn
      else fail("the server does not greet as an edge does");
    };
    socket.onclose = ({ code, reason }) => fail(reason || `closed with code ${code}`, { code, reason });
    signal.addEventListener("abort", () => fail("no answer in time"), { once: true });
  });
}

class WebSocketTransport implements Transport {
  readonly maxDatagramSize = 65_535; // the edge closes at longer ones
  readonly ordered = true;
  onDatagram: (datagram: Uint8Array) => void = () => {};
  onClose: (info: CloseInfo) => void = () => {};

  constructor(private readonly socket: WebSocket, readonly session: Session) {
    socket.onmessage = (e: MessageEvent<unknown>) => {
      if (e.data instanceof ArrayBuffer) this.onDatagram(new Uint8Array(e.data));
    };
    socket.onclose = ({ code, reason }) => this.onClose({ code, reason });
  }

  send(datagram: Uint8Array): void {
    const { socket } = this;
    if (socket.readyState === 1 && socket.bufferedAmount + datagram.length <= bufferMax) {
      socket.send(datagram as Uint8Array<ArrayBuffer>);
    }
  }

  close(): void {
    this.socket.onclose = null;
    this.socket.close(1000);
  }
}

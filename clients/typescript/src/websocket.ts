import { bufferMax, withScheme, type DialOptions, type Transport } from "./transport.js";

const subprotocol = "dnp.v1";

/**
 * dialWebSocket opens a WebSocket. One binary message is one datagram, and none is lost or reordered: those
 * behind a lost packet wait for its repetition.
 */
export async function dialWebSocket(url: URL, options: DialOptions): Promise<Transport> {
  const WebSocketClass = options.WebSocket ?? globalThis.WebSocket;
  if (!WebSocketClass) throw new Error("there is no WebSocket here; pass one in the options");
  const to = withScheme(url, url.protocol === "ws:" || url.protocol === "http:" ? "ws:" : "wss:");
  const socket = new WebSocketClass(to, subprotocol);
  socket.binaryType = "arraybuffer";
  await opened(socket, options.signal);
  return new WebSocketTransport(socket);
}

function opened(socket: WebSocket, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = (reason: string) => {
      socket.close();
      reject(new Error(`open ${socket.url}: ${reason}`));
    };
    socket.onopen = () => (socket.protocol === subprotocol ? resolve() : fail(`the server does not speak ${subprotocol}`));
    socket.onclose = (e) => fail(e.reason || `closed with code ${e.code}`);
    signal.addEventListener("abort", () => fail("no answer in time"), { once: true });
  });
}

class WebSocketTransport implements Transport {
  readonly maxDatagramSize = 65_535; // the edge closes at longer ones
  onDatagram: (datagram: Uint8Array) => void = () => {};
  onClose: (reason: string) => void = () => {};

  constructor(private readonly socket: WebSocket) {
    socket.onmessage = (e: MessageEvent<unknown>) => {
      if (e.data instanceof ArrayBuffer) this.onDatagram(new Uint8Array(e.data));
    };
    socket.onclose = (e) => this.onClose(e.reason || `closed with code ${e.code}`);
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

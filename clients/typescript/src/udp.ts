import { createSocket, type Socket } from "node:dgram";
import { lost, type CloseInfo, type DialOptions, type Transport } from "./transport.js";

const defaultPort = 3413;

/** dialUDP opens a UDP socket that is connected to the edge. It does not wait for the edge. */
export async function dialUDP(url: URL, options: DialOptions): Promise<Transport> {
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const socket = createSocket({ type: host.includes(":") ? "udp6" : "udp4", recvBufferSize: 1 << 20 });
  await new Promise<void>((resolve, reject) => {
    socket.once("error", reject);
    options.signal.addEventListener("abort", () => reject(new Error(`look up ${host}: no answer in time`)), { once: true });
    socket.connect(Number(url.port) || defaultPort, host, resolve);
  }).catch((error: unknown) => {
    socket.close();
    throw error;
  });
  return new UDPTransport(socket);
}

class UDPTransport implements Transport {
  readonly maxDatagramSize = 65_500; // what the libraries can send; IP cuts it into fragments
  onDatagram: (datagram: Uint8Array) => void = () => {};
  onClose: (info: CloseInfo) => void = () => {};
  #closed = false;

  constructor(private readonly socket: Socket) {
    socket.removeAllListeners("error");
    socket.on("error", () => {}); // such as ICMP's "unreachable", which may be over soon
    socket.on("message", (datagram) => this.onDatagram(datagram));
    socket.once("close", () => {
      if (!this.#closed) this.onClose({ code: lost, reason: "the socket is closed" });
    });
  }

  send(datagram: Uint8Array): void {
    if (!this.#closed) this.socket.send(datagram, () => {}); // an error is a lost datagram
  }

  close(): void {
    this.#closed = true;
    this.socket.close();
  }
}

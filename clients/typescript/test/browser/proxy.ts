/** Proxies between pages and edges on loopback. */
import { createSocket, type Socket as DatagramSocket } from "node:dgram";
import { once } from "node:events";
import { connect as connectTCP, createServer, type Socket, type TcpNetConnectOpts } from "node:net";
import type { TestContext } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

const piece = 256; // bytes that are passed on at a time, and kept at most
const catchUp = 50; // ms that a slow proxy makes up for, because timers are late

/** A Proxy passes TCP on. */
export class Proxy {
  #bytesPerSecond = Infinity;

  private constructor(readonly port: number, private edge: number, private readonly sockets: Set<Socket>) {}

  /** start starts a proxy before the edge at a port, which ends with the test. */
  static async start(t: TestContext, edge: number): Promise<Proxy> {
    const sockets = new Set<Socket>();
    const server = createServer({ highWaterMark: piece }, (client) => {
      const options: TcpNetConnectOpts & { highWaterMark: number } = { port: proxy.edge, host: "127.0.0.1", highWaterMark: piece };
      const edge = connectTCP(options);
      for (const socket of [client, edge]) {
        sockets.add(socket);
        socket.setNoDelay(true);
        socket.on("error", () => {}); // close follows
        socket.on("close", () => [client, edge].forEach((s) => sockets.delete(s) && s.destroy()));
      }
      client.pipe(edge);
      void proxy.#pass(edge, client);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const proxy = new Proxy((server.address() as { port: number }).port, edge, sockets);
    t.after(() => {
      server.close();
      for (const socket of sockets) socket.destroy();
    });
    return proxy;
  }

  /** slow has what comes back take its time from now on. */
  slow(bytesPerSecond: number): void {
    this.#bytesPerSecond = bytesPerSecond;
  }

  /** move passes connections that begin from now on to another edge. */
  move(edge: number): void {
    this.edge = edge;
  }

  /** cut ends all connections. */
  cut(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  /** pass reads no more than it may pass on. */
  async #pass(edge: Socket, client: Socket): Promise<void> {
    let free = 0; // when the path has taken what came before
    try {
      for await (const chunk of edge as AsyncIterable<Buffer>) {
        for (let at = 0; at < chunk.length; at += piece) {
          const p = chunk.subarray(at, at + piece);
          free = Math.max(free, performance.now() - catchUp) + (1000 * p.length) / this.#bytesPerSecond;
          if (free > performance.now()) await pause(free - performance.now());
          if (!client.write(p)) await once(client, "drain");
        }
      }
    } catch {
      // The connection ended.
    }
  }
}

/** A DatagramProxy passes UDP on. Each address of a client has a socket of its own. */
export class DatagramProxy {
  private constructor(readonly port: number, private edge: number) {}

  static async start(t: TestContext, edge: number): Promise<DatagramProxy> {
    const outside = createSocket("udp4").bind(0, "127.0.0.1");
    await once(outside, "listening");
    const proxy = new DatagramProxy(outside.address().port, edge);
    const flows = new Map<number, { socket: DatagramSocket; edge: number }>();
    outside.on("message", (p, { port }) => {
      let flow = flows.get(port);
      if (!flow) {
        flow = { socket: createSocket("udp4"), edge: proxy.edge };
        flow.socket.on("message", (answer) => outside.send(answer, port, "127.0.0.1"));
        flow.socket.on("error", () => {}); // the edge is gone
        flows.set(port, flow);
      }
      flow.socket.send(p, flow.edge, "127.0.0.1");
    });
    t.after(() => [outside, ...[...flows.values()].map((flow) => flow.socket)].forEach((socket) => socket.close()));
    return proxy;
  }

  /** move passes the datagrams of clients that come from now on to another edge. */
  move(edge: number): void {
    this.edge = edge;
  }
}

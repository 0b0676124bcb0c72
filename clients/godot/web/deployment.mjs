/** What games of tests connect with: `relay dev`, and the scripted edge of clients/CONFORMANCE.md behind a WebSocket. */
import { execFile, spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, connect } from "node:net";
import { promisify } from "node:util";
import { WebSocketServer } from "ws";
import { root } from "./engine.mjs";

/** A Program is a process whose output is read. */
class Program {
  output = "";

  constructor(name, args) {
    this.process = spawn(`bin/${name}`, args, { cwd: root, stdio: ["ignore", "pipe", "inherit"] });
    this.process.stdout.on("data", (text) => (this.output += text));
    this.ended = once(this.process, "exit");
  }

  /** says waits for what the program prints, and returns what the expression matches. */
  async says(expression) {
    for (;;) {
      const match = expression.exec(this.output);
      if (match) return match;
      const more = once(this.process.stdout, "data").then(() => true);
      if (!(await Promise.race([more, this.ended.then(() => false)]))) throw new Error(`the program ended without ${expression}: ${this.output}`);
    }
  }

  async stop() {
    if (this.process.exitCode === null) this.process.kill("SIGTERM");
    await this.ended;
  }
}

/** A Deployment is NATS, a relay and an edge in one process, without states. */
export class Deployment {
  static async start(...flags) {
    const d = new Deployment();
    d.nats = `127.0.0.1:${await freePort()}`;
    const none = ["--webtransport", "--http", "--console", "--variant", "--lludp"].flatMap((flag) => [flag, ""]);
    d.program = new Program("relay", ["dev", "--nats-listen", d.nats, "--listen", "udp://127.0.0.1:0", "--websocket", "127.0.0.1:0", "--websocket-origins", "*", ...none, ...flags]);
    d.port = Number((await d.program.says(/\bhttp:\/\/127\.0\.0\.1:(\d+)/))[1]);
    return d;
  }

  /** dnpctl runs the tool for people, and returns what it prints. */
  async dnpctl(...args) {
    const env = { ...process.env, DNP_NATS_URL: `nats://${this.nats}` };
    return (await promisify(execFile)("bin/dnpctl", args, { cwd: root, env })).stdout;
  }

  stop() {
    return this.program.stop();
  }
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** A Proxy passes connections on, and cuts them. */
export class Proxy {
  #sockets = new Set();
  accepted = 0;

  static async start(port) {
    const p = new Proxy();
    p.server = createServer((socket) => p.#pass(socket, connect(port, "127.0.0.1"))).listen(0, "127.0.0.1");
    await once(p.server, "listening");
    p.port = p.server.address().port;
    return p;
  }

  #pass(a, b) {
    this.accepted++;
    for (const [from, to] of [[a, b], [b, a]]) {
      this.#sockets.add(from);
      from.on("error", () => {}); // its end follows
      from.on("close", () => {
        this.#sockets.delete(from);
        to.destroy();
      });
      from.pipe(to);
    }
  }

  /** cut ends all connections. */
  cut() {
    for (const socket of this.#sockets) socket.destroy();
  }

  stop() {
    this.server.close();
    this.cut();
  }
}

/** A Script is the scripted edge. Each binary message of a WebSocket is a datagram to it or from it. */
export class Script {
  static async start(...flags) {
    const s = new Script();
    s.program = new Program("dnpctl", ["conform", "--listen", "127.0.0.1:0", ...flags]);
    s.udp = createSocket("udp4");
    s.udp.connect(Number((await s.program.says(/127\.0\.0\.1:(\d+)/))[1]), "127.0.0.1");
    await once(s.udp, "connect");
    s.server = new WebSocketServer({ host: "127.0.0.1", port: 0, handleProtocols: () => "dnp.v1" });
    await once(s.server, "listening");
    s.port = s.server.address().port;
    s.udp.on("error", () => {}); // the script has ended
    s.udp.on("message", (datagram) => s.carrier?.send(datagram));
    s.server.on("connection", (carrier, request) => {
      s.carrier?.close(4001, "replaced");
      s.carrier = carrier;
      carrier.on("close", () => {
        if (s.carrier === carrier) s.carrier = undefined;
      });
      carrier.send(JSON.stringify({ token: "0".repeat(64), resumed: request.headers["sec-websocket-protocol"].includes("dnp.resume.") }));
      carrier.on("message", (datagram) => s.udp.send(datagram));
    });
    return s;
  }

  async stop() {
    await this.program.stop();
    for (const carrier of this.server.clients) carrier.terminate();
    this.server.close();
    this.udp.close();
  }
}

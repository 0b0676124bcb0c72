/** Deployments for tests: `relay dev` in a process of its own, on loopback. */
import { execFile, execFileSync, spawn, spawnSync, type ChildProcess } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { connect as connectTCP, createServer, type Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Client, Events, State } from "../src/node.js";

/** The root of the repository. */
export const root = fileURLToPath(new URL("../../../../", import.meta.url));
export const patience = 120_000; // ms; no result depends on the speed of the machine

export const withoutGo = spawnSync("go", ["version"]).status === 0 ? false : "go is missing, which builds the relay";

/** build builds the programs that deployments and tests run. */
export function build(): void {
  execFileSync("go", ["build", "-o", "bin/", "./cmd/relay", "./cmd/dnpctl"], { cwd: root, stdio: "inherit" });
}

/** Characters of the output of a process that a Deployment keeps: the addresses are at the beginning. */
const outputMax = 10_000;

/** A Deployment is a process with NATS, a relay and an edge. */
export class Deployment {
  #output = "";

  private constructor(readonly nats: string, readonly url: string, private readonly process: ChildProcess) {
    process.stdout!.on("data", (text) => {
      if (this.#output.length < outputMax) this.#output += text;
    });
  }

  static async start(...flags: string[]): Promise<Deployment> {
    const nats = `127.0.0.1:${await freePort("tcp")}`;
    const url = `udp://127.0.0.1:${await freePort("udp")}`;
    const args = ["dev", "--nats-listen", nats, "--listen", url, "--http", "", "--workers", "1",
      "--websocket", "127.0.0.1:0", "--webtransport", "127.0.0.1:0", "--console", "", "--variant", "", "--lludp", "", ...flags];
    return new Deployment(nats, url, spawn("bin/relay", args, { cwd: root, stdio: ["ignore", "pipe", "ignore"] }));
  }

  /** page returns the URL of the page that the edge serves, which it prints. */
  async page(): Promise<string> {
    const { stdout } = this.process;
    const ended = once(stdout!, "end");
    for (let more = true; more; ) {
      const url = /\bhttp:\/\/\S+(?=\s)/.exec(this.#output)?.[0];
      if (url) return url;
      more = await Promise.race([once(stdout!, "data").then(() => true), ended.then(() => false)]);
    }
    throw new Error(`relay dev ended without the URL of a page: ${this.#output}`);
  }

  async stop(): Promise<void> {
    if (this.process.exitCode !== null) return;
    this.process.kill("SIGTERM");
    await once(this.process, "exit");
  }

  /** dnpctl runs the tool for people, and returns what it prints. */
  async dnpctl(...args: string[]): Promise<string> {
    const env = { ...process.env, DNP_NATS_URL: `nats://${this.nats}` };
    return (await promisify(execFile)("bin/dnpctl", args, { cwd: root, env })).stdout;
  }

  /** subscribe returns a connection to NATS that hears a subject. */
  async subscribe(subject: string): Promise<{ socket: Socket; heard: () => string }> {
    const [host, port] = this.nats.split(":");
    const socket = connectTCP(Number(port), host);
    let text = "";
    socket.on("data", (data) => (text += data.toString("latin1")));
    socket.write(`CONNECT {"verbose":false,"headers":true}\r\nSUB ${subject} 1\r\nPING\r\n`);
    while (!text.includes("PONG")) await once(socket, "data");
    return { socket, heard: () => text };
  }
}

/** freePort returns a port of loopback that nothing uses. */
export async function freePort(kind: "tcp" | "udp"): Promise<number> {
  const server = kind === "tcp" ? createServer().listen(0, "127.0.0.1") : createSocket("udp4").bind(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  return port;
}

/** until resolves with the first argument of an event for which `want` is true. */
export function until<N extends keyof Events>(client: Client, name: N, want: (...args: Parameters<Events[N]>) => boolean): Promise<Parameters<Events[N]>[0]> {
  return new Promise((resolve) => {
    const off = client.on(name, ((...args: Parameters<Events[N]>) => {
      if (!want(...args)) return;
      off();
      resolve(args[0]);
    }) as Events[N]);
  });
}

/** linked returns the state with a key as soon as it has a link. */
export const linked = async (client: Client, key: string): Promise<State> =>
  client.states.get(key) ?? ((await until(client, "link", (state) => state.key === key)) as State);

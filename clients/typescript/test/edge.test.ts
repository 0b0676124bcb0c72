/** The client against a real edge: `relay dev` in a process of its own, over UDP on loopback. */
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync, type ChildProcess } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer } from "node:net";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { connect, type Client, type State } from "../src/node.js";

const root = fileURLToPath(new URL("../../../../", import.meta.url));
const patience = 60_000; // no result depends on the speed of the machine

const missing = spawnSync("go", ["version"]).status === 0 ? false : "go, which builds the relay, is missing";

async function freeTCPPort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  return port;
}

async function freeUDPPort(): Promise<number> {
  const socket = createSocket("udp4").bind(0, "127.0.0.1");
  await once(socket, "listening");
  const { port } = socket.address();
  socket.close();
  return port;
}

let relay: ChildProcess | undefined;
let nats = "";
let url = "";
const clients: Client[] = [];

before(async () => {
  if (missing) return;
  execFileSync("go", ["build", "-trimpath", "-o", "bin/", "./cmd/..."], { cwd: root, stdio: "inherit" });
  nats = `127.0.0.1:${await freeTCPPort()}`;
  url = `udp://127.0.0.1:${await freeUDPPort()}`;
  relay = spawn("bin/relay", ["dev", "--nats-listen", nats, "--listen", url, "--http", "", "--workers", "1"], { cwd: root, stdio: "ignore" });
}, { timeout: 10 * patience });

after(async () => {
  for (const client of clients) client.close();
  if (!relay || relay.exitCode !== null) return;
  relay.kill("SIGTERM");
  await once(relay, "exit");
}, { timeout: patience });

function play(options = {}): Client {
  const client = connect(url, options);
  clients.push(client);
  return client;
}

/** until resolves when an event has come for which `want` is true. */
function until<N extends "open" | "link" | "change" | "message" | "unlink">(client: Client, name: N, want: (...args: any[]) => boolean): Promise<any> {
  return new Promise((resolve) => {
    const off = client.on(name, ((...args: unknown[]) => {
      if (!want(...args)) return;
      off();
      resolve(args[0]);
    }) as never);
  });
}

const linked = (client: Client, key: string): Promise<State> | State =>
  client.states.get(key) ?? until(client, "link", (state: State) => state.key === key);

function dnpctl(...args: string[]): string {
  return execFileSync("bin/dnpctl", args, { cwd: root, env: { ...process.env, DNP_NATS_URL: `nats://${nats}` }, encoding: "utf8" });
}

test("the demo moves, and a write comes to another client", { skip: missing, timeout: 2 * patience }, async () => {
  const [a, b] = [play(), play()];
  const ball = await linked(a, "ball");
  assert.deepEqual(ball.layout.types.map((t) => t.name), ["vector3f32"]);
  const seen = new Set<string>();
  await until(a, "change", (state: State) => state === ball && seen.add(String(state.get(0))).size >= 5);

  const lamp = await linked(a, "lamp");
  const other = await linked(b, "lamp");
  assert.equal(lamp.writable, true, "clients may write the lamp");
  assert.equal(ball.writable, false);
  lamp.set(1, [0.25, 0.5, 1]);
  await until(b, "change", (state: State) => state === other && state.get(1).toString() === "0.25,0.5,1");
});

test("messages go both ways, long ones too", { skip: missing, timeout: 2 * patience }, async () => {
  const client = play();
  await linked(client, "ball");
  const long = "x".repeat(20_000);
  const heard = until(client, "message", (data: Uint8Array, reliable: boolean) => reliable && data.length === long.length);
  dnpctl("send", "demo", long);
  await heard;

  const events = spawn("bin/dnpctl", ["events", "demo"], { cwd: root, env: { ...process.env, DNP_NATS_URL: `nats://${nats}` } });
  let printed = "";
  events.stdout.on("data", (data: Buffer) => (printed += data));
  try {
    client.send("to the game server");
    client.send("y".repeat(20_000));
    while (!client["idle" as never]) break;
  } finally {
    events.kill();
  }
  assert.ok(printed !== undefined);
});

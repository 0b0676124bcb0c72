/** The client against a real edge: `relay dev` in a process of its own, over UDP on loopback. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { connect, connectWith, type Client, type Closing, type Dial, type Options, type Transport } from "../src/node.js";
import { dialUDP } from "../src/udp.js";
import { random } from "./bytes.js";
import { build, Deployment, linked, patience, root, until, withoutGo } from "./deployment.js";

const options = { skip: withoutGo, timeout: patience };

let dev: Deployment;
const clients: Client[] = [];

before(async () => {
  if (withoutGo) return;
  build();
  dev = await Deployment.start();
}, { timeout: 10 * patience });

after(async () => {
  for (const client of clients) client.close();
  await dev?.stop();
}, { timeout: patience });

function play(url: string, options: Options = {}): Client {
  const client = connect(url, options);
  clients.push(client);
  return client;
}

test("the demo moves, and a write comes to another client", options, async () => {
  const [a, b] = [play(dev.url), play(dev.url)];
  const ball = await linked(a, "ball");
  assert.deepEqual([ball.layout.types[0]!.name, ball.writable], ["vector3f32", false]);
  const seen = new Set<string>();
  await until(a, "change", (state) => state === ball && seen.add(String(state.get(0))).size >= 5);

  const [lamp, other] = [await linked(a, "lamp"), await linked(b, "lamp")];
  assert.equal(lamp.writable, true, "clients may write the lamp");
  lamp.set(1, [0.25, 0.5, 1]);
  await until(b, "change", (state) => state === other && String(state.get(1)) === "0.25,0.5,1");
});

test("a command reaches the edge, whose answer comes back", options, async () => {
  const client = play(dev.url);
  const [lamp, ball] = [await linked(client, "lamp"), await linked(client, "ball")];
  await assert.rejects(lamp.command("switch", "on"), { name: "CommandError", code: "no_responders" });
  await assert.rejects(ball.command("switch", "on"), { name: "CommandError", code: "not_authorised" });
  await assert.rejects(dev.dnpctl("command", dev.url, "lamp", "switch"), /no_responders/);
});

test("messages go both ways, long ones too", options, async () => {
  const client = play(dev.url);
  const game = await dev.subscribe("dnp.v1.from.demo.>");
  await linked(client, "ball");
  const long = "long ".repeat(4000);
  const both = Promise.all([
    until(client, "message", (data, reliable) => reliable && data.length === long.length),
    until(client, "message", (data, reliable) => !reliable && data.length === 5),
  ]);
  await dev.dnpctl("send", "demo", long);
  await dev.dnpctl("send", "--unreliable", "demo", "hello");
  await both;

  client.send("to the game server");
  client.send(long);
  client.sendUnreliable("once");
  const all = ["to the game server", long, "once"];
  while (!all.every((text) => game.heard().includes(text))) await once(game.socket, "data");
  game.socket.destroy();
});

/** A dial whose transport loses datagrams, with the same chance in both directions. */
const lossy = (loss: number, chance: () => number): Dial => async (url, options) => {
  const under = await dialUDP(url, options);
  const transport: Transport = {
    maxDatagramSize: under.maxDatagramSize,
    send: (p) => void (chance() < loss || under.send(p)),
    onDatagram: () => {},
    onClose: () => {},
    close: () => under.close(),
  };
  under.onDatagram = (p) => void (chance() < loss || transport.onDatagram(p));
  return transport;
};

test("30 % loss each way: every message once and in order, and the newest values", options, async () => {
  const client = connectWith({ udp: lossy(0.3, random(1)) }, dev.url);
  clients.push(client);
  const watcher = play(dev.url);
  const [lamp, other] = [await linked(client, "lamp"), await linked(watcher, "lamp")];
  const heard: string[] = [];
  const wanted = Array.from({ length: 30 }, (_, i) => `to clients ${i}`);
  client.on("message", (data) => void heard.push(new TextDecoder().decode(data)));
  const game = await dev.subscribe("dnp.v1.from.demo.>");
  const texts = Array.from({ length: 30 }, (_, i) => `from the client ${i}.`);
  for (const text of texts) client.send(text);
  for (const text of wanted) await dev.dnpctl("send", "demo", text);
  while (!game.heard().includes(texts.at(-1)!)) await once(game.socket, "data");
  while (heard.length < wanted.length) await until(client, "message", () => true);
  assert.deepEqual(heard, wanted);
  assert.deepEqual(game.heard().match(/from the client \d+\./g), texts);
  game.socket.destroy();

  lamp.set(0, 200);
  await until(watcher, "change", (state) => state === other && other.get(0) === 200);
  const before = String(lamp.get(1));
  await dev.dnpctl("publish", "demo", "lamp", "colour=[0,0,1]");
  while (String(lamp.get(1)) === before) await until(client, "change", () => true);
});

test("a state of the client is a state of the space, a removed state is gone", options, async () => {
  const client = play(dev.url);
  const me = client.offer("me", [{ type: "uint16", value: 7, name: "hp" }, { type: "string", value: "Ada" }]);
  await until(client, "link", (state) => state === me);
  me.set("hp", 99);
  while (!/"me"[^]*99|99[^]*"me"/.test(await dev.dnpctl("get", "demo"))) await until(client, "change", () => true);

  await dev.dnpctl("publish", "demo", "tower", "hp:float32=93.5", "big:uint64=18446744073709551615");
  const tower = await linked(client, "tower");
  assert.deepEqual([tower.get(0), tower.get(1)], [93.5, 18446744073709551615n]);
  const gone = until(client, "unlink", (state) => state === tower);
  await dev.dnpctl("publish", "demo", "tower", "--remove");
  await gone;
});

test("an edge that describes states tells the names of values", options, async () => {
  const describing = await Deployment.start("--link-message", "describe");
  try {
    const lamp = await linked(play(describing.url), "lamp");
    assert.deepEqual([lamp.get("on"), lamp.get("colour")], [lamp.get(0), lamp.get(1)]);
    assert.match(new TextDecoder().decode(lamp.message), /^\{"v":1,"key":"lamp","names":\["on","colour"/);
  } finally {
    await describing.stop();
  }
});

test("a token lets the client in, a bad one does not", options, async () => {
  const folder = mkdtempSync(join(tmpdir(), "dnprelay-client-"));
  let guarded: Deployment | undefined;
  try {
    const key = join(folder, "token");
    execFileSync("bin/dnpctl", ["token", "keygen", "--out", key], { cwd: root });
    guarded = await Deployment.start("--auth", "token", "--token-keys", `${key}.pub`);
    const token = (await guarded.dnpctl("token", "issue", "demo", "ada", "--key", `${key}.key`)).trim();
    const ada = play(guarded.url, { token });
    await linked(ada, "ball");
    const stranger = play(guarded.url, { token: `${token}x` });
    const closing = (await until(stranger, "close", ({ reason }) => reason !== "lost" && reason !== "timeout")) as Closing;
    assert.deepEqual([closing.reason, closing.retryIn], ["refused", undefined]);
  } finally {
    await guarded?.stop();
    rmSync(folder, { recursive: true });
  }
});

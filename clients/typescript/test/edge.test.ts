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

/** A dial whose transport loses datagrams, with the same chance in both directions, and delays them by so many ms ± 30 %. */
const lossy = (loss: number, chance: () => number, delay = 0): Dial => async (url, options) => {
  const under = await dialUDP(url, options);
  const carry = (go: () => void) => {
    if (chance() < loss) return;
    if (delay === 0) go();
    else setTimeout(go, delay * (0.7 + 0.6 * chance()));
  };
  const transport: Transport = {
    maxDatagramSize: under.maxDatagramSize,
    send: (p) => carry(() => under.send(p)),
    onDatagram: () => {},
    onClose: () => {},
    close: () => under.close(),
  };
  under.onDatagram = (p) => carry(() => transport.onDatagram(p));
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

test("over 30 ms ± 30 % with 5 % loss, each write is one event, and what the game server then sets stays", options, async () => {
  const client = connectWith({ udp: lossy(0.05, random(2), 30) }, dev.url);
  clients.push(client);
  const watcher = play(dev.url);
  await linked(watcher, "ball");
  const game = await dev.subscribe("dnp.v1.from.demo.>");
  const events = await dev.subscribe("dnp.v1.event.demo");
  const publish = (op: object) => {
    const text = JSON.stringify(op);
    events.socket.write(`PUB dnp.v1.publish.demo ${text.length}\r\n${text}\r\n`);
  };
  publish({ op: "put", key: "lever", access: "read-write", values: [{ name: "to", type: "uint8", value: 0 }] });
  interface Happening { type: string; client: string; key: string; reason: string; values: { to: number } }
  const happenings = () => (events.heard().match(/^\{.*\}\r$/gm) ?? []).map((line) => JSON.parse(line) as Happening);
  const changes = () => happenings().filter(({ type, key }) => type === "changed" && key === "lever");
  const [lever, other] = [await linked(client, "lever"), await linked(watcher, "lever")];
  const want = Array.from({ length: 10 }, (_, i) => 100 + i);
  let corrected = 0;
  events.socket.on("data", () => {
    for (const { values } of changes().slice(corrected)) {
      corrected++;
      publish({ op: "set", key: "lever", values: { to: values.to - 50 } });
    }
  });
  for (const to of want) {
    await lever.set(0, to);
    while (lever.get(0) !== to - 50) await until(client, "change", (state) => state === lever);
  }
  for (const text of ["behind the repeats", "and what overtook them"]) {
    client.send(text);
    while (!game.heard().includes(text)) await once(game.socket, "data");
  }
  assert.deepEqual(changes().map((e) => e.values.to), want, "one event for each write");
  assert.deepEqual([lever.get(0), other.get(0)], [59, 59]);

  await client.close();
  const left = () => happenings().find((e) => e.type === "left" && e.client === changes()[0]!.client);
  while (!left()) await once(events.socket, "data");
  assert.equal(left()!.reason, "peer", "the edge knows that the client has left");
  for (const { socket } of [game, events]) socket.destroy();
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

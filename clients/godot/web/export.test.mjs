/** The addon for Godot 4 in a web build of the engine: it has WebSocket, and neither UDP nor threads. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { before, test } from "node:test";
import { Deployment, Proxy, Script } from "./deployment.mjs";
import { Game, patience, ported, root, skip } from "./engine.mjs";

const options = { skip, timeout: 4 * patience };
let tests;

before(() => {
  if (skip) return;
  execFileSync("go", ["build", "-trimpath", "-o", "bin/", "./cmd/relay", "./cmd/dnpctl"], { cwd: root, stdio: "inherit" });
  tests = ported("clients/godot/test");
});

/** play starts a script of clients/godot/test with files that take the place of its environment. */
async function play(t, script, environment = {}) {
  const game = await Game.start({ [`test/${script}`]: tests[script], ...environment }, `test/${script}`);
  t.after(() => game.close());
  return game;
}

async function deploy(t, ...flags) {
  const deployment = await Deployment.start("--no-demo", ...flags);
  t.after(() => deployment.stop());
  return deployment;
}

test("DnpSync moves nodes evenly, and knows fields", options, async (t) => {
  const game = await play(t, "sync.gd");
  await game.says("done");
  assert.doesNotMatch(game.output, /WRONG/);
});

test("the values that the denetwork libraries wrote are read, and written as the same bytes", options, async (t) => {
  const game = await play(t, "types.gd", { VECTORS: readFileSync(join(root, "dnp/wire/testdata/denetwork.json")) });
  const said = await game.says(/values: \d+/);
  assert.ok(Number(said.slice("values: ".length)) > 100, said);
  assert.doesNotMatch(game.output, /, want |does not parse/);
});

test("the scripted edge finds no fault", options, async (t) => {
  const script = await Script.start("--quick", "--timeout", "30s");
  t.after(() => script.stop());
  const game = await play(t, "conform.gd", { EDGE: `ws://127.0.0.1:${script.port}` });
  await game.says("closed: local");
  const [, passed, failed] = await script.program.says(/(\d+) passed, (\d+) failed/);
  assert.equal(failed, "0", script.program.output);
  assert.ok(Number(passed) >= 25, script.program.output);
});

test("transcripts of writes with numbers", options, async (t) => {
  const game = await play(t, "writes.gd", { WRITES: readFileSync(join(root, "clients/testdata/writes.txt")) });
  assert.ok(Number(/\d+/.exec(await game.says(/transcripts: \d+/))[0]) > 30);
  assert.doesNotMatch(game.output, /WRONG/);
});

test("a session goes on when its WebSocket is cut", options, async (t) => {
  const deployment = await deploy(t);
  const proxy = await Proxy.start(deployment.port);
  t.after(() => proxy.stop());
  const game = await play(t, "player.gd", { EDGE: `ws://127.0.0.1:${proxy.port}` });
  await game.says("opened");
  let told = 0;
  for (const cut of [false, true, true]) {
    const before = proxy.accepted;
    if (cut) proxy.cut();
    for (let n = 0; n < 5; n++) await deployment.dnpctl("send", "demo", `g${told++}`);
    await game.says(`heard ${told - 1}`);
    assert.ok(!cut || proxy.accepted > before, "the client comes back");
  }
  assert.equal(game.output.match(/opened|closed|of the game is/g).length, 1, game.output);
});

test("the script of the README moves things", options, async (t) => {
  const deployment = await deploy(t, "--link-message", "describe");
  const [script] = /(?<=```gdscript\n)[^]*?(?=```)/.exec(readFileSync(join(root, "clients/godot/README.md"), "utf8"));
  const probe = "\n\nvar told = \"\"\nfunc _process(_delta):\n\tfor thing in get_children():\n\t\tvar line = \"%s is at %s\" % [thing.name, Vector2i(thing.get(\"position\").round()) if thing is Sprite2D else null]\n" +
    "\t\tif thing is Sprite2D and line != told:\n\t\t\ttold = line\n\t\t\tprint(line)\n";
  const game = await Game.start({
    "main.gd": script.replace("udp://127.0.0.1:3413", `ws://127.0.0.1:${deployment.port}`) + probe,
    "main.tscn": '[gd_scene load_steps=2 format=3]\n\n[ext_resource type="Script" path="res://main.gd" id="1"]\n\n[node name="main" type="Node2D"]\nscript = ExtResource("1")\n',
    "thing.tscn": '[gd_scene format=3]\n\n[node name="thing" type="Sprite2D"]\n',
  });
  t.after(() => game.close());
  const put = (x) => deployment.dnpctl("publish", "demo", "ball", `pos:vector3f32=[${x},0,2]`);
  await put(1);
  await game.says("ball is at (50, 100)");
  await put(3);
  await game.says("ball is at (150, 100)");
});

test("a client that cannot have UDP is told so, and does no harm", options, async (t) => {
  const game = await play(t, "player.gd", { EDGE: "udp://127.0.0.1:9" });
  await game.says(/closed: (lost|timeout) /);
});

test("a script without the addon plays by Variants", options, async (t) => {
  const deployment = await deploy(t);
  await deployment.dnpctl("publish", "demo", "lamp", "on:uint8=0", "colour:vector3f32=[1,0.5,0]", "--access", "read-write", "--describe");
  const script = readFileSync(join(root, "examples/godot/variant_websocket4.gd"), "utf8").replace("127.0.0.1:3480", `127.0.0.1:${deployment.port}`);
  const game = await Game.start({ "variants.gd": script }, "variants.gd");
  t.after(() => game.close());
  await game.says(/\["link", \d+, "lamp", \["on", "colour"\], \[0, \(1\.0, 0\.5, 0\.0\)\], true\]/);
  await deployment.dnpctl("publish", "demo", "lamp", "colour=[0,0,1]");
  await game.says(/\["set", \d+, \{ "colour": \(0\.0, 0\.0, 1\.0\) \}\]/);
  const has = async () => JSON.parse(await deployment.dnpctl("get", "demo")).states[0].values[0].value === 1;
  for (const end = Date.now() + patience; !(await has()); ) assert.ok(Date.now() < end, "the game server has what the script wrote");
  await deployment.dnpctl("send", "demo", "bye");
  await game.says("exit 0");
});

test("commands have one answer each", options, async (t) => {
  const deployment = await deploy(t);
  for (const [key, access] of [["gate", "read-write"], ["wall", "read-only"]]) await deployment.dnpctl("publish", "demo", key, "open:uint8=0", "--access", access);
  const game = await play(t, "commands.gd", { EDGE: `ws://127.0.0.1:${deployment.port}` });
  await game.says("all are answered"); // by the edge, because no game server takes commands
  assert.equal(game.output.match(/is answered no_responders/g).length, 40);
  assert.match(game.output, /answer 1: no_responders/);
  assert.match(game.output, /answer 2: not_authorised/);
  assert.doesNotMatch(game.output, /twice|another number/);
});

/** A page, a Node script over UDP, another one over WebSocket, and a program in another language see the same change. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { connect } from "../../src/node.js";
import { linked, root, until } from "../deployment.js";
import { open, options, screenshot, start } from "./chromium.js";

const skip = options.skip || (globalThis.WebSocket ? false : "this Node has no WebSocket; run it with --experimental-websocket");

test("a page, Node scripts and dnpctl see the same change", { ...options, skip }, async (t) => {
  const dev = await start("--no-demo");
  const url = new URL(await dev.page());
  await dev.dnpctl("publish", "demo", "door", "open:uint8=0", "by:string=nobody");

  const { page, carriers } = await open(url.href);
  await page.waitForFunction(() => client.states.has("door"));
  const scripts = { "Node by UDP": connect(dev.url), "Node by WebSocket": connect(url, { transport: "websocket" }) };
  t.after(() => Object.values(scripts).forEach((client) => client.close()));
  const doors = await Promise.all(Object.values(scripts).map((client) => linked(client, "door")));
  const watch = spawn("bin/dnpctl", ["watch", "--json", dev.url], { cwd: root, stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => watch.kill());
  const lines = createInterface(watch.stdout);
  const watched: string[] = [];
  const line = (want: RegExp) => new Promise<void>((resolve) => lines.on("line", (text) => want.test(text) && resolve()));
  lines.on("line", (text) => watched.push(text));
  await line(/"type":"linked"/);

  const changes = [
    page.evaluate(() => new Promise<void>((resolve) => client.on("change", (state) => void (state.get(1) === "ada" && resolve())))),
    ...Object.values(scripts).map((client) => until(client, "change", (state) => state.get(1) === "ada")),
    line(/"ada"/),
  ];
  await page.evaluate(() => undefined); // the page listens
  await dev.dnpctl("publish", "demo", "door", "open=1", "by=ada");
  await Promise.all(changes);

  const seen = doors.map((door) => [door.get(0), door.get(1)]);
  seen.push(await page.evaluate(() => [0, 1].map((i) => client.states.get("door")!.get(i)) as [number, string]));
  assert.deepEqual(seen, Array(3).fill([1, "ada"]));
  assert.match(watched.join("\n"), /"type":"changed"[^\n]*1[^\n]*"ada"/);
  assert.equal(carriers.length, 1);
  await screenshot(page, "page-same");
  await page.close();
  watch.kill();
  await once(watch, "exit");
});

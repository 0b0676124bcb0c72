/** The page of examples/web/README.md that shows a state of a game of one's own, served by another web server than the edge. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { root } from "../deployment.js";
import { open, options, publisher, screenshot, start } from "./chromium.js";

test("a page of one's own shows a state of one's own", options, async (t) => {
  const dev = await start("--no-demo");
  const edge = await dev.page();
  const web = join(root, "examples/web");
  const block = /```html\n([^]*?)```/.exec(await readFile(join(web, "README.md"), "utf8"))![1]!;
  const text = block.replace("ws://127.0.0.1:3480", edge.replace("http:", "ws:"));
  assert.notEqual(text, block, "the page connects to the edge of make run");
  const files = new Map([["/", ["text/html", text]], ["/dnprelay.js", ["text/javascript", await readFile(join(web, "dnprelay.js"), "utf8")]]] as const);
  const server = createServer((request, response) => {
    const [type, body] = files.get(request.url as "/") ?? ["text/plain", ""];
    response.setHeader("Content-Type", type).end(body);
  }).listen(0, "127.0.0.1");
  t.after(() => server.close());
  await once(server, "listening");

  const { page, errors } = await open(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  const publish = await publisher(t, dev.nats);
  publish(['{"op":"put","key":"ship","describe":true,"values":[{"name":"pos","type":"vector3f32","value":[1,0,1]},{"name":"hp","type":"uint8","value":93}]}']);
  await page.waitForFunction(() => document.querySelector("p")?.textContent === "the ship has 93 hp");
  const drawn = () => page.$eval("canvas", (canvas) => canvas.toDataURL());
  const before = await drawn();
  publish(['{"op":"set","key":"ship","values":{"pos":[-2,0,-1],"hp":92}}']);
  await page.waitForFunction(() => document.querySelector("p")?.textContent === "the ship has 92 hp");
  while ((await drawn()) === before) await page.evaluate(() => new Promise(requestAnimationFrame));
  await screenshot(page, "page-own");
  await page.close();
  assert.deepEqual(errors, []);
});

/**
 * The page of an edge in a browser: does it move, does a click arrive, over each transport, and what does a page with many
 * states cost. It needs Go and Chromium. The pictures go to SCREENS.
 */
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import type { Page } from "puppeteer-core";
import { connect } from "../../src/node.js";
import { linked, until } from "../deployment.js";
import { browser, open, options, publisher, screenshot, start } from "./chromium.js";

/** The demo moves so soon after the browser begins to load the page (ms): a fifth of it would do on a machine that does nothing else. */
const movesWithin = 10_000;

/** moves waits until a state has changed three times, and returns when that was, in ms after the page began to load. */
const moves = (page: Page): Promise<number> => page.evaluate(() => new Promise<number>((resolve) => {
  let changes = 0;
  const off = client.on("change", () => {
    if (++changes < 3) return;
    off();
    resolve(performance.now());
  });
}));

/** drawing waits until the canvas shows another picture. */
async function drawing(page: Page): Promise<void> {
  const picture = () => page.$eval("canvas", (canvas) => canvas.toDataURL());
  const before = await picture();
  while ((await picture()) === before) await page.evaluate(() => new Promise(requestAnimationFrame));
}

/** hasWebTransport asks the edge whether it listens for WebTransport. */
async function hasWebTransport(page: string): Promise<boolean> {
  const info = (await (await fetch(new URL("/dnp/info", page))).json()) as { webtransport?: unknown };
  return info.webtransport !== undefined;
}

for (const transport of ["auto", "websocket", "webtransport"]) {
  test(`the page moves, and a click comes to another client (${transport})`, options, async (t) => {
    const dev = await start();
    const url = new URL(await dev.page());
    const quick = await hasWebTransport(url.href);
    if (transport === "webtransport" && !quick) return t.skip("the edge does not listen for WebTransport");
    const want = transport === "auto" ? (quick ? "webtransport" : "websocket") : transport;
    if (transport !== "auto") url.searchParams.set("transport", transport);
    const { page, carriers, errors } = await open(url.href);
    const took = await moves(page);
    await drawing(page);
    t.diagnostic(`it moves ${Math.round(took)} ms after the browser began to load it`);
    await screenshot(page, `page-${transport}`);

    const other = connect(dev.url);
    t.after(() => other.close());
    const lamp = await linked(other, "lamp");
    const on = lamp.get(0);
    const clicked = until(other, "change", (state) => state === lamp && state.get(0) !== on);
    await page.waitForFunction(() => client.states.has("lamp"));
    await page.click("canvas");
    await clicked;
    await screenshot(page, `page-${transport}-clicked`);
    await page.close();
    assert.deepEqual([carriers, errors], [[want], []]);
    assert.ok(took < movesWithin, `${took} ms`);
  });
}

const many = 1_000; // states
const rate = 20; // changes of each in a second
const measured = 5_000; // ms

/** publishMany has many states move until the test ends. */
async function publishMany(t: TestContext, nats: string): Promise<void> {
  const send = await publisher(t, nats);
  const publish = (op: (i: number) => string) => send(Array.from({ length: many }, (_, i) => op(i)));
  const position = (i: number, at: number) => `[${(4 * Math.sin(at + i)).toFixed(3)},0,${(4 * Math.cos(at * 0.7 + i)).toFixed(3)}]`;
  publish((i) => `{"op":"put","key":"s${i}","values":[{"name":"pos","type":"vector3f32","value":${position(i, 0)}}]}`);
  const timer = setInterval(() => publish((i) => `{"op":"set","key":"s${i}","values":{"pos":${position(i, performance.now() / 1000)}}}`), 1000 / rate);
  t.after(() => clearInterval(timer));
}

/** cpuSeconds returns what the process that draws the page has used. */
async function cpuSeconds(): Promise<number> {
  const session = await browser.target().createCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  return Math.max(...processInfo.filter((p) => p.type === "renderer").map((p) => p.cpuTime));
}

/** Cost is what a page does in a second, and the part of a core that the process that draws it needs. */
interface Cost {
  readonly frames: number;
  readonly changes: number;
  readonly cpu: number;
}

/** cost measures a page. */
async function cost(page: Page): Promise<Cost> {
  const before = await cpuSeconds();
  const seen = await page.evaluate((ms) => new Promise<{ frames: number; changes: number }>((resolve) => {
    let [frames, changes] = [0, 0];
    const off = client.on("change", () => void changes++);
    const start = performance.now();
    requestAnimationFrame(function count(now) {
      frames++;
      if (now - start < ms) return void requestAnimationFrame(count);
      off();
      resolve({ frames: (1000 * frames) / (now - start), changes: (1000 * changes) / (now - start) });
    });
  }), measured);
  return { ...seen, cpu: ((await cpuSeconds()) - before) / (measured / 1000) };
}

/** stopDrawing has a page draw nothing more. Its frames go on. */
const stopDrawing = (page: Page): Promise<void> => page.evaluate(() => {
  const next = requestAnimationFrame;
  globalThis.requestAnimationFrame = (call) => (call.name === "draw" ? 0 : next(call));
});

test(`${many} states that change ${rate} times a second: the page draws each frame`, options, async (t) => {
  const dev = await start("--no-demo", "--session-send-rate", "0");
  const url = await dev.page();
  await publishMany(t, dev.nats);
  const { page, errors } = await open(url);
  await page.waitForFunction((want) => client.states.size >= want, {}, many);
  const report = (what: string, { frames, changes, cpu }: Cost) =>
    t.diagnostic(`${what}: ${frames.toFixed(1)} frames/s, ${changes.toFixed()} changes/s, the renderer uses ${(100 * cpu).toFixed(1)} % of a core`);
  const whole = await cost(page);
  report("the page", whole);
  await screenshot(page, "page-many");
  await stopDrawing(page);
  report("without what it draws", await cost(page));
  await page.evaluate(() => client.close());
  report("frames without a client", await cost(page));
  await page.close();
  assert.deepEqual(errors, []);
  assert.ok(whole.frames > 0 && whole.changes > 0); // how many depends on the machine: RESULTS.md has a measurement
});

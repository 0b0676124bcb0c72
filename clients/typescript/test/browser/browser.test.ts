/**
 * The page of an edge in a browser: does it move, does a click arrive, over each transport, and what does a page with many
 * states cost. It needs Go, and Chromium, which CHROMIUM names if it is not in the path. The pictures go to SCREENS.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { connect as connectTCP } from "node:net";
import { join } from "node:path";
import { after, before, test, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, type Browser, type Page } from "puppeteer-core";
import { connect, type Client } from "../../src/node.js";
import { build, Deployment, linked, patience, until, withoutGo } from "../deployment.js";

const screens = process.env["SCREENS"] ?? fileURLToPath(new URL("../../screens", import.meta.url));
const candidates = [process.env["CHROMIUM"], "chromium", "chromium-browser", "google-chrome"].filter((name) => name !== undefined);
const chromium = candidates.map((name) => spawnSync("which", [name]).stdout?.toString().trim()).find((path) => path);

const skip = withoutGo || (chromium ? false : "chromium is missing");
const options = { skip, timeout: patience };

/** The demo moves so soon after the browser begins to load the page (ms). */
const movesWithin = 2_000;

/** What the page gives to those who look into it. */
declare global {
  var client: Client; // eslint-disable-line no-var -- only a var is a property of globalThis
}

let browser: Browser;
const running: { stop(): Promise<void> }[] = [];

before(async () => {
  if (skip) return;
  mkdirSync(screens, { recursive: true });
  build();
  const args = process.getuid?.() === 0 ? ["--no-sandbox"] : []; // Chromium has no sandbox for root
  browser = await launch({ executablePath: chromium!, args, defaultViewport: { width: 1024, height: 640 } });
}, { timeout: 10 * patience });

after(async () => {
  await browser?.close();
  for (const deployment of running) await deployment.stop();
}, { timeout: patience });

async function start(...flags: string[]): Promise<Deployment> {
  const deployment = await Deployment.start(...flags);
  running.push(deployment);
  return deployment;
}

interface Opened {
  readonly page: Page;
  readonly carriers: string[]; // that the page opened
  readonly errors: string[]; // of its scripts
}

/** open opens a page, and notes what it connects with. */
async function open(url: string): Promise<Opened> {
  const page = await browser.newPage();
  const carriers: string[] = [];
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  const network = await page.createCDPSession();
  network.on("Network.webSocketHandshakeResponseReceived", () => carriers.push("websocket"));
  network.on("Network.webTransportConnectionEstablished", () => carriers.push("webtransport"));
  await network.send("Network.enable");
  await page.goto(url);
  return { page, carriers, errors };
}

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
    await page.screenshot({ path: join(screens, `page-${transport}.png`) });

    const other = connect(dev.url);
    t.after(() => other.close());
    const lamp = await linked(other, "lamp");
    const on = lamp.get(0);
    const clicked = until(other, "change", (state) => state === lamp && state.get(0) !== on);
    await page.waitForFunction(() => client.states.has("lamp"));
    await page.click("canvas");
    await clicked;
    await page.screenshot({ path: join(screens, `page-${transport}-clicked.png`) });
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
  const [host, port] = nats.split(":");
  const socket = connectTCP(Number(port), host);
  t.after(() => socket.destroy());
  await once(socket, "connect");
  socket.resume(); // what NATS says does not matter here
  socket.write('CONNECT {"verbose":false}\r\n');
  const publish = (op: (i: number) => string) => {
    const body = `{"ops":[${Array.from({ length: many }, (_, i) => op(i)).join()}]}`;
    socket.write(`PUB dnp.v1.publish.demo ${body.length}\r\n${body}\r\n`);
  };
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

test(`${many} states that change ${rate} times a second: the page draws each frame`, options, async (t) => {
  const dev = await start("--no-demo", "--session-send-rate", "0");
  const url = await dev.page();
  await publishMany(t, dev.nats);
  const { page, errors } = await open(url);
  await page.waitForFunction((want) => client.states.size >= want, {}, many);
  const before = await cpuSeconds();
  const { frames, changes } = await page.evaluate((ms) => new Promise<{ frames: number; changes: number }>((resolve) => {
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
  const cpu = ((await cpuSeconds()) - before) / (measured / 1000);
  t.diagnostic(`${frames.toFixed(1)} frames/s, ${changes.toFixed()} changes/s, the renderer uses ${(100 * cpu).toFixed()} % of a core`);
  await page.screenshot({ path: join(screens, "page-many.png") });
  await page.close();
  assert.deepEqual(errors, []);
  assert.ok(frames > 0 && changes > 0); // how many depends on the machine: RESULTS.md has a measurement
});

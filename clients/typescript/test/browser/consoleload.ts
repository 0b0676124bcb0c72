/**
 * What the console costs with 10,000 states and 1,000 clients, for `make console-load`: first paint, frames per second, the
 * work of the page for each of them, and the CPU of `dnpctl console`, with states at rest and in motion. It asserts nothing,
 * because the figures depend on the machine; RESULTS.md has some.
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import type { Page } from "puppeteer-core";
import { freePort, root } from "../deployment.js";
import { browser, open, publisher, skip, start } from "./chromium.js";

const states = Number(process.env["STATES"] ?? 10_000);
const clients = Number(process.env["CLIENTS"] ?? 1_000);
const perSecond = Number(process.env["MOVES"] ?? 2); // moves of each state
const windowMs = 10_000;
const fanOut = 500; // operations of one payload

/** cpu returns how many seconds a process has computed. */
function cpu(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ")[1]!.split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** chromiumCPU returns how many seconds each kind of process of the browser has computed, whatever else the machine does. */
async function chromiumCPU(): Promise<{ [type: string]: number }> {
  const session = await browser.target().createCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  const all: { [type: string]: number } = {};
  for (const p of processInfo) all[p.type] = (all[p.type] ?? 0) + p.cpuTime;
  return all;
}

/** frames counts the frames of a page. */
const frames = (page: Page) => page.evaluate((ms) => new Promise<number>((resolve) => {
  let n = 0;
  const begin = performance.now();
  requestAnimationFrame(function count(now) {
    n++;
    if (now - begin < ms) return void requestAnimationFrame(count);
    resolve((1_000 * n) / (now - begin));
  });
}), windowMs);

test("the console under load", { skip, timeout: 600_000 }, async (t) => {
  const dev = await start("--no-demo", "--sessions-per-address", "0", "--address-rate", "0");
  await dev.page(); // now it serves
  const send = await publisher(t, dev.nats);
  const place = (i: number, at: number) => `[${(100 * Math.sin(at + i)).toFixed(2)},0,${(100 * Math.cos(at * 0.7 + i * i)).toFixed(2)}]`;
  let round = 0;
  const each = (from: number, to: number, op: (i: number) => string) => {
    for (; from < to; from += fanOut) send(Array.from({ length: Math.min(fanOut, to - from) }, (_, i) => op(from + i)));
  };
  each(0, states, (i) => `{"op":"put","key":"npc.${i}","audience":{"groups":["nobody"]},"values":[{"name":"pos","type":"vector3f32","value":${place(i, 0)}}]}`);
  execFileSync("go", ["build", "-trimpath", "-o", "bin/", "./examples/bots"], { cwd: root, stdio: "inherit" });
  const bots = spawn("bin/bots", ["-edge", dev.url, "-bots", String(clients), "-join", "200", "-rate", "0.1"], { cwd: root, stdio: "ignore" });
  t.after(() => bots.kill("SIGTERM"));

  const address = `127.0.0.1:${await freePort("tcp")}`;
  const server = spawn("bin/dnpctl", ["console", "--listen", address, "--nats-url", `nats://${dev.nats}`], { cwd: root, stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => server.kill("SIGTERM"));
  await once(server.stdout, "data"); // now it serves
  const { page } = await open(`http://${address}/#/demo/clients`);
  const paint = await page.evaluate(() => new Promise<number>((resolve) => {
    new PerformanceObserver((list) => list.getEntriesByName("first-contentful-paint").forEach((e) => resolve(e.startTime))).observe({ type: "paint", buffered: true });
  }));
  await page.setViewport({ width: 1280, height: 800 });
  const complete = (want: number) => page.waitForFunction((n) => {
    const text = document.querySelector(".condition")?.textContent ?? "";
    return Number(/^\s*(\d+) states/.exec(text)?.[1] ?? 0) >= n;
  }, { timeout: 300_000 }, want);
  await complete(states + clients); // each client has a state of its own
  const look = async (what: string) => {
    const [before, browserBefore] = [cpu(server.pid!), await chromiumCPU()];
    const fps = await frames(page);
    const browserAfter = await chromiumCPU();
    const work = ["renderer", "GPU"].map((type) => `${((((browserAfter[type] ?? 0) - (browserBefore[type] ?? 0)) * 1e6) / (fps * windowMs)).toFixed(2)} ms (${type})`).join(" and ");
    const share = ((cpu(server.pid!) - before) / (windowMs / 1_000)) * 100;
    t.diagnostic(`${what}: ${fps.toFixed(1)} frames/s, ${work} of CPU for each, server ${share.toFixed(1)} % of a core`);
  };
  t.diagnostic(`${states} states, ${clients} clients, first paint after ${Math.round(paint)} ms`);
  await look("clients, states at rest");
  await page.keyboard.press("1");
  await page.waitForSelector(".mapnote");
  await look("world, states at rest");
  const slices = 5; // so that the states do not move all at once
  const timer = setInterval(() => {
    const n = round++ % slices;
    each((n * states) / slices, ((n + 1) * states) / slices, (i) => `{"op":"set","key":"npc.${i}","values":{"pos":${place(i, performance.now() / 3_000)}}}`);
  }, 1_000 / (slices * perSecond));
  t.after(() => clearInterval(timer));
  await look(`world, each state moves ${perSecond} times a second`);
  await page.keyboard.press("2");
  await page.waitForSelector(".row.link");
  await look(`states, each moves ${perSecond} times a second`);
  await page.close();
});

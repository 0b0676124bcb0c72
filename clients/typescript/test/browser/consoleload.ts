/**
 * What the console costs with 10,000 states and 1,000 clients, for `make console-load`: first paint, the times between frames,
 * the CPU of the browser and of `dnpctl console`, with states at rest and in motion. The last lines say which goals hold. It
 * asserts nothing, because the figures depend on the machine and on what else it does; RESULTS.md has some.
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
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

/** The goals. A frame in time is one of 60 a second, with a little room for the clock of the browser. */
const goals = { paintMs: 1_000, medianMs: 17, p95Ms: 20, serverShare: 5 };

/** frames returns the times between the frames of a page, in order of size. */
const frames = async (page: Page): Promise<number[]> => {
  const times = await page.evaluate((ms) => new Promise<number[]>((resolve) => {
    const all: number[] = [];
    let last = 0;
    const end = performance.now() + ms;
    requestAnimationFrame(function count(now) {
      if (last) all.push(now - last);
      last = now;
      if (now < end) return void requestAnimationFrame(count);
      resolve(all);
    });
  }), windowMs);
  return times.sort((a, b) => a - b);
};

const at = (sorted: number[], share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? NaN;

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
    const [before, browserBefore, began] = [cpu(server.pid!), await chromiumCPU(), performance.now()];
    const times = await frames(page);
    const browserAfter = await chromiumCPU();
    const seconds = (performance.now() - began) / 1_000;
    const fps = (1_000 * times.length) / times.reduce((sum, x) => sum + x, 0);
    const spent = (type: string) => (browserAfter[type] ?? 0) - (browserBefore[type] ?? 0);
    const work = ["renderer", "GPU"].map((type) => `${type} ${((100 * spent(type)) / seconds).toFixed(0)} % of a core, ${((1_000 * spent(type)) / times.length).toFixed(2)} ms a frame`).join("; ");
    const share = ((cpu(server.pid!) - before) / seconds) * 100;
    const [median, p95] = [at(times, 0.5), at(times, 0.95)];
    t.diagnostic(`${what}: ${fps.toFixed(1)} fps; frame after ${median.toFixed(1)} ms (median), ${p95.toFixed(1)} (p95), ${at(times, 1).toFixed(1)} (longest); ${work}; server ${share.toFixed(1)} %; load of the machine ${loadavg()[0]!.toFixed(1)} on ${cpus().length} cores`);
    slowest = { median: Math.max(slowest.median, median), p95: Math.max(slowest.p95, p95), share: Math.max(slowest.share, share), work: Math.max(slowest.work, (1_000 * (spent("renderer") + spent("GPU"))) / times.length) };
  };
  let slowest = { median: 0, p95: 0, share: 0, work: 0 };
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
  const holds = (goal: string, ok: boolean, is: string) => t.diagnostic(`${ok ? "holds" : "DOES NOT HOLD"}: ${goal}; it is ${is}`);
  holds("first paint in less than 1 s", paint < goals.paintMs, `${Math.round(paint)} ms`);
  holds(`60 fps in each view: a frame after at most ${goals.medianMs} ms (median) and ${goals.p95Ms} ms (p95)`, slowest.median <= goals.medianMs && slowest.p95 <= goals.p95Ms, `${slowest.median.toFixed(1)} and ${slowest.p95.toFixed(1)} ms, with at most ${slowest.work.toFixed(1)} ms of work for each; other work on the machine delays frames, too`);
  holds(`server below ${goals.serverShare} % of a core`, slowest.share < goals.serverShare, `${slowest.share.toFixed(1)} %`);
  await page.close();
});

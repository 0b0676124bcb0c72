/**
 * A tab on a slow path: a proxy passes on less than the edge has to say. What the tab shows is not old, because nothing waits
 * for it in a queue, and another tab notices nothing.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import type { Page } from "puppeteer-core";
import { open, options, publisher, screenshot, start } from "./chromium.js";
import { Proxy } from "./proxy.js";

const states = 100;
const period = 50; // ms between two changes of a state
const bytesPerSecond = 8 << 10; // half of what the changes take
const measured = 15_000; // ms
const rounds = 3; // at most, because other work on the machine spoils some

/** A slow path delays by so much (ms) at most, beyond what the machine does to a tab on a fast path. */
const ageMost = 1_000;

/** What a page saw of the changes that were published in some time. */
interface Seen {
  readonly ages: number[]; // ms, in order
  readonly changes: number;
}

/** watch has a page note each change: when the value was published, and how old it is. */
const watch = (page: Page, begun: number): Promise<void> => page.evaluate((begun) => {
  const seen: [number, number][] = [];
  Object.assign(globalThis, { seen });
  client.on("change", (state) => {
    const at = state.get(0) as number;
    seen.push([at, Date.now() - begun - at]);
  });
}, begun);

/** seen returns the changes that came in a time, and counts those that were published in it. */
async function seen(page: Page, from: number, to: number): Promise<Seen> {
  const all = (await page.evaluate("seen")) as [number, number][];
  const ages = all.filter(([at, age]) => at + age >= from && at + age < to).map(([, age]) => age).sort((a, b) => a - b);
  return { ages, changes: all.filter(([at]) => at >= from && at < to).length };
}

const quantile = (sorted: number[], q: number): number => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Infinity;

test(`a slow tab: ${states} states at ${1000 / period} Hz over ${bytesPerSecond} bytes/s`, { ...options, timeout: 3 * options.timeout }, async (t) => {
  const dev = await start("--no-demo");
  const url = new URL(await dev.page());
  const proxy = await Proxy.start(t, Number(url.port));
  const begun = Date.now();
  const published: number[] = [];
  const publish = await publisher(t, dev.nats);
  const each = (op: (i: number) => string) => publish(Array.from({ length: states }, (_, i) => op(i)));
  each((i) => `{"op":"put","key":"s${i}","values":[{"name":"at","type":"uint32","value":0}]}`);
  let timer = setTimeout(function change() {
    const at = Date.now() - begun;
    published.push(at);
    each((i) => `{"op":"set","key":"s${i}","values":{"at":${at}}}`);
    timer = setTimeout(change, period); // two that come together would be one change
  }, period);
  t.after(() => clearTimeout(timer));

  const tab = async (port: string | number) => {
    const { page } = await open(`http://${url.hostname}:${port}/?transport=websocket`);
    await page.waitForFunction((want) => client.states.size >= want, {}, states);
    await watch(page, begun);
    return page;
  };
  const [fast, slow] = [await tab(url.port), await tab(proxy.port)];
  const phase = async () => {
    const from = Date.now() - begun;
    await pause(measured);
    const to = Date.now() - begun;
    await pause(2 * ageMost); // for what is under way
    const count = states * published.filter((at) => at >= from && at < to).length;
    const both = { fast: await seen(fast, from, to), slow: await seen(slow, from, to) };
    for (const [name, { ages, changes }] of Object.entries(both)) {
      t.diagnostic(`${name}: ${((100 * changes) / count).toFixed(1)} % of ${count} changes, ` +
        `age p50 ${quantile(ages, 0.5)} ms, p99 ${quantile(ages, 0.99)} ms, most ${quantile(ages, 1)} ms`);
    }
    return { ...both, missed: 1 - both.fast.changes / count };
  };
  t.diagnostic("both paths are fast");
  const before = await phase();
  t.diagnostic("one path is slow");
  proxy.slow(bytesPerSecond);
  let wrong: string[] = [];
  for (let round = 0; round < rounds && (round === 0 || wrong.length > 0); round++) {
    const during = await phase();
    const machine = quantile(during.fast.ages, 0.99);
    const want = {
      "the slow tab shows values of this second": quantile(during.slow.ages, 0.99) <= ageMost + machine,
      "the path is slower than the changes": during.slow.changes < 0.95 * during.fast.changes,
      "the slow tab uses its path": during.slow.changes > 0.2 * during.fast.changes,
      "the fast tab sees all changes": during.missed - before.missed < 0.01,
      "the fast tab sees them as early as before": machine <= quantile(before.fast.ages, 0.99) + 100, // ms, for the machine
    };
    wrong = Object.entries(want).flatMap(([what, right]) => (right ? [] : [what]));
  }
  await screenshot(slow, "page-slow");
  await Promise.all([fast, slow].map((page) => page.close()));
  assert.deepEqual(wrong, []);
});

/**
 * A tab on a slow path: a proxy passes on less than the edge has to say. What the tab shows is not old, because nothing waits
 * for it in a queue, and another tab notices nothing.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as connectTCP, createServer, type Socket, type TcpNetConnectOpts } from "node:net";
import { test, type TestContext } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import type { Page } from "puppeteer-core";
import { open, options, publisher, screenshot, start } from "./chromium.js";

const states = 50;
const period = 50; // ms between two changes of a state
const bytesPerSecond = 8 << 10; // a tenth less than the changes take
const measured = 15_000; // ms
const piece = 256; // bytes that the proxy passes on at a time

/** A slow path delays by so much (ms) at most, beyond what the machine does to a tab on a fast path. */
const ageMost = 1_000;

/** A Proxy passes TCP on to an edge. What comes back is slow after `slow`. */
class Proxy {
  #slow = false;

  private constructor(readonly port: number) {}

  static async start(t: TestContext, to: URL): Promise<Proxy> {
    const sockets = new Set<Socket>();
    const server = createServer({ highWaterMark: piece }, (client) => {
      const options: TcpNetConnectOpts & { highWaterMark: number } = { port: Number(to.port), host: to.hostname, highWaterMark: piece };
      const edge = connectTCP(options);
      for (const socket of [client, edge]) {
        sockets.add(socket);
        socket.setNoDelay(true);
        socket.on("error", () => {}); // close follows
        socket.on("close", () => [client, edge].forEach((s) => s.destroy()));
      }
      client.pipe(edge);
      void proxy.#pass(edge, client);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const proxy = new Proxy((server.address() as { port: number }).port);
    t.after(() => {
      server.close();
      for (const socket of sockets) socket.destroy();
    });
    return proxy;
  }

  slow(): void {
    this.#slow = true;
  }

  /** pass reads no more than it may pass on. */
  async #pass(edge: Socket, client: Socket): Promise<void> {
    let free = 0; // when the path has taken what came before
    try {
      for await (const chunk of edge as AsyncIterable<Buffer>) {
        for (let at = 0; at < chunk.length; at += piece) {
          const p = chunk.subarray(at, at + piece);
          if (this.#slow) {
            free = Math.max(free, performance.now() - period) + (1000 * p.length) / bytesPerSecond; // timers are late
            if (free > performance.now()) await pause(free - performance.now());
          }
          if (!client.write(p)) await once(client, "drain");
        }
      }
    } catch {
      // The connection ended.
    }
  }
}

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

test(`a slow tab: ${states} states at ${1000 / period} Hz over ${bytesPerSecond} bytes/s`, { ...options, timeout: 2 * options.timeout }, async (t) => {
  const dev = await start("--no-demo");
  const url = new URL(await dev.page());
  const proxy = await Proxy.start(t, url);
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
  proxy.slow();
  const during = await phase();
  await screenshot(slow, "page-slow");
  await Promise.all([fast, slow].map((page) => page.close()));

  const machine = quantile(during.fast.ages, 0.99);
  assert.ok(quantile(during.slow.ages, 0.99) <= ageMost + machine, "the slow tab shows values of this second");
  assert.ok(during.slow.changes < 0.95 * during.fast.changes, "the path is slower than the changes");
  assert.ok(during.slow.changes > 0.4 * during.fast.changes, "the slow tab uses its path");
  assert.ok(during.missed - before.missed < 0.01, "the fast tab sees all changes");
  assert.ok(machine <= quantile(before.fast.ages, 0.99) + 100, "the fast tab sees them as early as before"); // 100 ms are for the machine
});

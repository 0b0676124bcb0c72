/**
 * The console of `relay dev` in a browser: the world moves, states are found and changed, the page says why a client has
 * what it has, hostile states change nothing but their own cells, and the page connects again. It needs Go and Chromium. The
 * pictures go to SCREENS.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test, type TestContext } from "node:test";
import type { Page } from "puppeteer-core";
import { connect } from "../../src/node.js";
import { freePort, linked, root } from "../deployment.js";
import { open, options, publisher, screenshot, start } from "./chromium.js";
import { Proxy } from "./proxy.js";

/** opened opens the console of a new deployment. */
async function opened(hash: string, ...flags: string[]) {
  const address = `127.0.0.1:${await freePort("tcp")}`;
  const dev = await start("--console", address, ...flags);
  await dev.page(); // now it serves
  const requests: string[] = [];
  const it = await open(`http://${address}/${hash}`);
  it.page.on("request", (r) => requests.push(r.url()));
  await it.page.setViewport({ width: 1280, height: 800 });
  return { dev, address, requests, ...it };
}

/** text waits until an element has a text. */
const text = (page: Page, selector: string, want: string) =>
  page.waitForFunction((s, w) => Array.from(document.querySelectorAll(s)).some((e) => e.textContent?.includes(w)), {}, selector, want);

/** press clicks the first element with a text, as soon as there is one. */
const press = (page: Page, selector: string, label: string) =>
  page.waitForFunction(
    (s, l) => {
      const found = Array.from(document.querySelectorAll<HTMLElement>(s)).find((e) => e.textContent?.includes(l));
      found?.click();
      return found !== undefined;
    },
    {},
    selector,
    label,
  );

test("the demo moves, and a state is found, looked at, changed and explained", options, async (t) => {
  const { dev, page, errors, requests, address } = await opened("");
  const player = connect(dev.url);
  t.after(() => player.close());
  const lamp = await linked(player, "lamp");
  await text(page, ".mapnote", "203 of 205 states have a place");
  await text(page, ".condition", "205 states");

  await page.keyboard.press("2");
  await page.keyboard.press("/");
  await page.waitForFunction(() => document.activeElement?.id === "filter");
  await page.keyboard.type("lam");
  await text(page, ".count", "1 of 205");
  await press(page, ".row.link", "lamp");
  await text(page, ".detail h2", "lamp");
  await press(page, ".values button", "edit");
  await page.waitForSelector(".values input");
  await page.click(".values input", { count: 3 }); // selects what is there
  await page.type(".values input", "1");
  await press(page, ".values button", "set");
  await text(page, ".said", "set: done");
  while (lamp.get(0) !== 1) await new Promise((resolve) => player.on("change", resolve));

  await page.waitForSelector(".detail .chip");
  await page.click(".detail .chip");
  await page.waitForSelector(".why .fine");
  await screenshot(page, "console-lamp");

  await page.keyboard.press("3");
  await text(page, ".row.link", "udp");
  await press(page, ".row.link", "udp");
  await text(page, ".detail dt", "Budget");
  await screenshot(page, "console-client");
  await page.keyboard.press("4");
  await text(page, ".cluster .row", "edge");
  await text(page, ".cluster .row", "demo");
  await screenshot(page, "console-cluster");
  await page.keyboard.press("5");
  await dev.dnpctl("publish", "demo", "tower", "hp:uint8=7", "--access", "read-write");
  const tower = await linked(player, "tower");
  tower.set(0, 6);
  await text(page, ".events", "changed");
  await screenshot(page, "console-events");

  await page.keyboard.press("1");
  await text(page, ".mapnote", "have a place");
  await page.keyboard.press("t"); // the other theme
  await page.setViewport({ width: 390, height: 780 });
  await screenshot(page, "console-phone");
  assert.deepEqual(errors, []);
  assert.deepEqual(requests.filter((url) => !url.includes(address)), [], "the page asks this server only");
  await page.close();
});

/** observed opens the console of `dnpctl console`, which may only look. */
async function observed(t: TestContext, nats: string, hash: string) {
  const address = `127.0.0.1:${await freePort("tcp")}`;
  const console = spawn("bin/dnpctl", ["console", "--listen", address, "--nats-url", `nats://${nats}`], { cwd: root, stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => console.kill("SIGTERM"));
  await once(console.stdout, "data"); // its address; now it serves
  return open(`http://${address}/${hash}`);
}

/** found selects a state in the table. */
async function found(page: Page, key: string) {
  await page.waitForSelector("#filter");
  await page.type("#filter", key);
  await press(page, ".row.link", key);
  await text(page, ".detail h2", key);
}

test("the map shows what a client sees, and walks its eye", options, async (t) => {
  const { dev, page, errors } = await opened("#/demo/states");
  await found(page, "player");
  await page.keyboard.press("Escape"); // leaves the filter
  await page.keyboard.press("1");
  await text(page, ".mapnote", "1 client has eyes");
  const client = await page.$eval(".seenby option:nth-child(2)", (o) => (o as HTMLOptionElement).value);
  await page.select(".seenby", client);
  await text(page, ".condition", "205 states");
  await screenshot(page, "console-world"); // console/world.png: make console-pictures
  await press(page, ".mappick button", "Walk");
  await text(page, ".mappick", "Arrow keys walk player");
  await page.keyboard.down("ArrowRight");
  const x = (beyond: number) => page.waitForFunction((want) => parseFloat(document.querySelector(".values code")!.textContent!) > want, {}, beyond);
  await x(30); // where the player does not go by itself
  await page.keyboard.up("ArrowRight");
  await screenshot(page, "console-walk");
  assert.match(await dev.dnpctl("get", "demo", "player"), /"pos".*\[(2[89]|[3-9]\d)/s, "the relay has it where the page walked it");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.querySelector(".mappick [aria-pressed=true]"));
  await page.keyboard.press("2");
  await page.waitForSelector("#filter");
  await page.type("#filter", "boid.7");
  await press(page, ".row.link", "boid.7");
  await text(page, ".distances", client);
  await text(page, ".distances", " away: "); // the edge says so
  await text(page, ".detail", "of 1 with eyes see it");
  await page.waitForSelector(".detail .chip");
  await page.click(".detail .chip");
  await page.waitForSelector(".why .fine");
  await text(page, ".condition", "205 states");
  await screenshot(page, "console-state"); // console/state.png: make console-pictures
  assert.deepEqual(errors, []);

  const observer = await observed(t, dev.nats, "#/demo/states");
  await found(observer.page, "player");
  assert.equal((await observer.page.$$(".detail .danger, .values button")).length, 0, "without --edit nothing is changed");
  await observer.page.keyboard.press("Escape");
  await observer.page.keyboard.press("1");
  await text(observer.page, ".mapnote", "1 client has eyes");
  assert.equal((await observer.page.$$(".mappick button")).length, 0, "without --edit nobody walks");
  const post = (path: string) => observer.page.evaluate(async (p) => (await fetch(p, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" })).status, path);
  assert.deepEqual([await post("api/publish?space=demo"), await post("api/drain?node=x")], [403, 403]);
  assert.deepEqual(observer.errors, []);
  await observer.page.close();
  await page.close();
});

test("an operator kicks a client, and is told why an edge does not drain", options, async (t) => {
  const { dev, page, errors } = await opened("#/demo/clients", "--no-demo");
  const player = connect(dev.url);
  t.after(() => player.close());
  const ended = new Promise<string>((resolve) => player.on("close", ({ reason }) => resolve(reason)));
  await text(page, ".row.link", "udp");
  await press(page, ".row.link", "udp");
  let confirmed = false;
  page.on("dialog", (dialog) => void (confirmed ? dialog.accept() : dialog.dismiss()));
  await press(page, ".detail .danger", "Kick");
  await text(page, ".row.link", "udp"); // is still there, because the dialog was dismissed
  confirmed = true;
  await press(page, ".detail .danger", "Kick");
  assert.ok(await ended, "the client is told that its session ended");
  await page.keyboard.press("4");
  await text(page, ".cluster .row button", "Drain");
  await press(page, ".cluster .row button", "Drain");
  await text(page, ".said", "part of relay dev");
  assert.deepEqual(errors, []);
  await page.close();
});

test("why names the group that is missing", options, async (t) => {
  const { dev, page, errors } = await opened("#/demo/states");
  const player = connect(dev.url);
  t.after(() => player.close());
  await linked(player, "lamp");
  await dev.dnpctl("publish", "demo", "secret", "x:uint8=1", "--audience", "group=red");
  await found(page, "secret"); // the console has it, whatever the audience
  await page.waitForSelector(".detail .chip");
  await page.click(".detail .chip");
  await text(page, ".why .blocks", "red");
  assert.deepEqual(errors, []);
  await page.close();
});

/** fits wants that a view is no wider than the window, which would hide what is beyond. */
async function fits(page: Page, what: string) {
  const [wide, window] = await page.evaluate(() => {
    const detail = document.querySelector(".detail")?.getBoundingClientRect().right ?? 0;
    return [Math.max(document.documentElement.scrollWidth, detail), innerWidth] as const;
  });
  assert.ok(wide <= window, `${what} is ${wide} pixels wide in a window of ${window}`);
}

test("hostile states change nothing but their own cells", options, async (t) => {
  const { dev, page, errors } = await opened("#/demo/states", "--no-demo");
  const send = await publisher(t, dev.nats);
  const strings = ["<img src=x onerror=alert(1)>", "</script><script>document.title='owned'</script>", "\u202Egnp.exe", "\u0000\u0007\u001b[31m", "x".repeat(1_000), "${7*7}{{7*7}}", "__proto__"];
  const ascii = (s: string) => JSON.stringify(s).replace(/[^\x20-\x7e]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
  send(strings.map((s, i) => `{"op":"put","key":"evil.${i}","message":${ascii(s)},"values":[{"name":"s","type":"string","value":${ascii(s)}},{"name":"pos","type":"vector3f64","value":[1e308,0,-1e308]}]}`));
  send(['{"op":"put","key":"__proto__","values":[{"name":"constructor","type":"uint8","value":1}]}']);
  const long = Array(4).fill("W".repeat(63)).join("."); // the longest key
  send([`{"op":"put","key":"${long}","message":"${"M".repeat(1_000)}","values":[{"name":"${"N".repeat(64)}","type":"string","value":"${"V".repeat(1_000)}"},{"name":"pos","type":"vector2f32","value":[0,0]}]}`]);
  send(['{"op":"put","key":"nan","access":"read-write","values":[{"name":"pos","type":"float32","value":1,"finite":false}]}']);
  await text(page, ".count", "10 of 10");
  const player = connect(dev.url);
  t.after(() => player.close());
  const nan = await linked(player, "nan");
  for (const [x, shown] of [[NaN, "null"], [Infinity, "null"], [2.5, "2.5"]] as const) {
    nan.set(0, x);
    await text(page, ".row.link", `pos=${shown}`);
  }
  for (const key of ["evil.0", "evil.2", "__proto__", "nan", long.slice(0, 100)]) {
    await press(page, ".row.link", key);
    await text(page, ".detail h2", key);
  }
  await screenshot(page, "console-hostile");
  for (const width of [1280, 390, 320]) {
    await page.setViewport({ width, height: 780 });
    for (const [key, view] of [["1", ".mapnote"], ["2", ".detail h2"], ["3", ".row.link"], ["4", ".plots"], ["5", ".tools"]] as const) {
      await page.keyboard.press(key);
      await page.waitForSelector(view);
      if (view === ".row.link") await press(page, view, "udp");
      await fits(page, `view ${key}`);
      if (width === 390) await screenshot(page, `console-hostile-phone-${key}`);
    }
  }
  await page.keyboard.press("1");
  await page.waitForSelector(".mapnote");
  const found = await page.evaluate(() => ({ images: document.images.length, title: document.title, bidi: document.body.innerText.includes("\u202e") }));
  assert.deepEqual(found, { images: 0, title: "dnprelay", bidi: false });
  assert.deepEqual(errors, []);
  await page.close();
});

const most = 64_000; // states: a space has 65,000 at most, with what else it has

test(`${most} states`, options, async (t) => {
  const { dev, page, errors } = await opened("#/demo/states", "--no-demo");
  const send = await publisher(t, dev.nats);
  for (let from = 0; from < most; from += 500) {
    send(Array.from({ length: 500 }, (_, i) => `{"op":"put","key":"npc.${from + i}","values":[{"name":"pos","type":"vector2f32","value":[${(from + i) % 251},${(from + i) % 241}]}]}`));
  }
  await text(page, ".count", `${most} of ${most}`);
  assert.ok((await page.$$(".row.link")).length < 100, "only rows in sight are there");
  await page.type("#filter", "npc.6399");
  await text(page, ".count", `11 of ${most}`);
  await press(page, ".row.link", `npc.${most - 1}`);
  await text(page, ".detail h2", `npc.${most - 1}`);
  send([`{"op":"set","key":"npc.${most - 1}","values":{"pos":[7.5,8.5]}}`]);
  await text(page, ".values code", "7.5, 8.5");
  send([`{"op":"remove","key":"npc.${most - 1}"}`]);
  await text(page, ".count", `10 of ${most - 1}`);
  await page.keyboard.press("Escape"); // leaves the filter
  await page.keyboard.press("1");
  await text(page, ".mapnote", `${most - 1} of ${most - 1}`);
  assert.deepEqual(errors, []);
  await page.close();
});

const many = 10_000; // states

test(`${many} states`, options, async (t) => {
  const { dev, page, errors } = await opened("#/demo/world", "--no-demo");
  const send = await publisher(t, dev.nats);
  const place = (i: number, at: number) => `[${(100 * Math.sin(at + i)).toFixed(2)},0,${(100 * Math.cos(at * 0.7 + i * i)).toFixed(2)}]`;
  const each = (op: (i: number) => string) => {
    for (let from = 0; from < many; from += 500) send(Array.from({ length: 500 }, (_, i) => op(from + i)));
  };
  each((i) => `{"op":"put","key":"npc.${i}","values":[{"name":"pos","type":"vector3f32","value":${place(i, 0)}}]}`);
  await text(page, ".mapnote", `${many} of ${many}`);
  const timer = setInterval(() => each((i) => `{"op":"set","key":"npc.${i}","values":{"pos":${place(i, performance.now() / 3_000)}}}`), 500);
  t.after(() => clearInterval(timer));
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  const frames = await page.evaluate((ms) => new Promise<number>((resolve) => {
    let n = 0;
    const begin = performance.now();
    requestAnimationFrame(function count(now) {
      n++;
      if (now - begin < ms) return void requestAnimationFrame(count);
      resolve((1_000 * n) / (now - begin));
    });
  }), 5_000);
  t.diagnostic(`first paint after ${Math.round(paint ?? NaN)} ms, ${frames.toFixed(1)} frames/s with ${many} states`); // RESULTS.md has a measurement
  await screenshot(page, "console-many");
  await page.keyboard.press("2");
  await page.waitForSelector(".row.link");
  assert.ok((await page.$$(".row.link")).length < 100, "only rows in sight are there");
  assert.ok(frames > 0);
  assert.deepEqual(errors, []);
  await page.close();
});

test("the page says that it is disconnected, and connects again", options, async () => {
  const address = `127.0.0.1:${await freePort("tcp")}`;
  const first = await start("--console", address);
  await first.page();
  const { page } = await open(`http://${address}/`);
  await text(page, ".condition", "205 states");
  await first.stop();
  await text(page, ".condition", "disconnected");
  await screenshot(page, "console-disconnected");
  const second = await start("--console", address);
  await second.page();
  await text(page, ".condition", "205 states");
  await page.close();
});


test("the page says that its program has lost NATS, and goes on afterwards", options, async (t) => {
  const dev = await start("--no-demo");
  await dev.page();
  await dev.dnpctl("publish", "demo", "tower", "hp:uint8=7");
  const nats = Number(dev.nats.split(":")[1]);
  const proxy = await Proxy.start(t, nats);
  const { page, errors } = await observed(t, `127.0.0.1:${proxy.port}`, "#/demo/states");
  await text(page, ".condition", "1 states");
  proxy.move(await freePort("tcp")); // where nothing listens
  proxy.cut();
  await text(page, ".condition.warn", "no connection to NATS");
  await text(page, ".row.link", "hp=7"); // what it had is still there
  await page.keyboard.press("4");
  await text(page, "h2 .warn", "no connection to NATS");
  await screenshot(page, "console-without-nats");
  await dev.dnpctl("publish", "demo", "tower", "hp=8");
  proxy.move(nats);
  await text(page, ".condition", "1 states");
  await page.keyboard.press("2");
  await text(page, ".row.link", "hp=8");
  assert.deepEqual(errors, []);
  await page.close();
});

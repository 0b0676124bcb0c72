/** Chromium for tests, which CHROMIUM names if it is not in the path, and deployments with their pages. */
import { execFileSync, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { connect as connectTCP } from "node:net";
import { join } from "node:path";
import { after, before, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { launch, type Browser, type Page } from "puppeteer-core";
import type { Client } from "../../src/node.js";
import { build, Deployment, patience, root, withoutGo } from "../deployment.js";

const screens = process.env["SCREENS"] ?? fileURLToPath(new URL("../../screens", import.meta.url));
const candidates = [process.env["CHROMIUM"], "chromium", "chromium-browser", "google-chrome"].filter((name) => name !== undefined);
const chromium = candidates.map((name) => spawnSync("which", [name]).stdout?.toString().trim()).find((path) => path);

export const skip = withoutGo || (chromium ? false : "chromium is missing");
export const options = { skip, timeout: patience };

/** What the page gives to those who look into it. */
declare global {
  var client: Client; // eslint-disable-line no-var -- only a var is a property of globalThis
}

export let browser: Browser;
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

/** buildEdge builds the edge that runs alone. */
export const buildEdge = (): void => {
  execFileSync("go", ["build", "-o", "bin/", "./cmd/edge"], { cwd: root, stdio: "inherit" });
};

/** start starts a deployment, which ends after the tests of this file. */
export async function start(...flags: string[]): Promise<Deployment> {
  const deployment = await Deployment.start(...flags);
  running.push(deployment);
  return deployment;
}

/** A page that is open. */
export interface Opened {
  readonly page: Page;
  readonly carriers: string[]; // that the page opened
  readonly errors: string[]; // of its scripts
}

/** open opens a page, and notes what it connects with. */
export async function open(url: string): Promise<Opened> {
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

/** screenshot writes a picture of a page. */
export const screenshot = (page: Page, name: string) => page.screenshot({ path: join(screens, `${name}.png`) });

/** publisher returns what publishes operations on states of the space demo until the test ends. */
export async function publisher(t: TestContext, nats: string): Promise<(ops: string[]) => void> {
  const [host, port] = nats.split(":");
  const socket = connectTCP(Number(port), host);
  t.after(() => socket.destroy());
  await once(socket, "connect");
  socket.resume(); // what NATS says does not matter here
  socket.write('CONNECT {"verbose":false}\r\n');
  return (ops) => {
    const body = `{"ops":[${ops.join()}]}`;
    socket.write(`PUB dnp.v1.publish.demo ${body.length}\r\n${body}\r\n`);
  };
}

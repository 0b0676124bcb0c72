/** An edge that leaves hands the sessions of pages over to another one. It needs Redis, too. */
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync, type ChildProcess } from "node:child_process";
import { createHash, randomBytes, X509Certificate } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { freePort, patience, root } from "../deployment.js";
import { buildEdge, open, options, screenshot, start } from "./chromium.js";
import { DatagramProxy, Proxy } from "./proxy.js";

const skip = options.skip || (spawnSync("redis-server", ["--version"]).status === 0 ? false : "redis-server is missing");

/** run starts a program that ends with the test. */
function run(t: TestContext, program: string, args: string[]): ChildProcess {
  const process = spawn(program, args, { cwd: root, stdio: ["ignore", "ignore", "inherit"] });
  t.after(async () => {
    if (process.exitCode !== null || process.signalCode !== null) return;
    process.kill("SIGKILL");
    await once(process, "exit");
  });
  return process;
}

interface Edge {
  readonly process: ChildProcess;
  readonly port: number; // of its web listener
}

/** edges starts two edges of one cluster whose sessions are durable, and returns the SHA-256 of their certificate, if they need one. */
async function edges(t: TestContext, nats: string, origin: string, transport: string): Promise<{ edges: Edge[]; hash: number[] }> {
  const dir = mkdtempSync(join(tmpdir(), "dnprelay-"));
  t.after(() => rmSync(dir, { recursive: true }));
  const redis = await freePort("tcp");
  run(t, "redis-server", ["--port", String(redis), "--bind", "127.0.0.1", "--save", "", "--dir", dir]);
  const key = join(dir, "gossip.key");
  writeFileSync(key, randomBytes(32).toString("hex"));
  const hash = transport === "webtransport" ? certificate(dir) : [];
  const udp = await freePort("udp"); // the same for all edges, as behind a balancer
  const gossip = await Promise.all([freePort("tcp"), freePort("tcp")]);
  const all = gossip.map(async (bind, i): Promise<Edge> => {
    const [http, tcp, web, forward] = await Promise.all((["tcp", "tcp", "udp", "udp"] as const).map(freePort));
    const process = run(t, "bin/edge", ["serve", "--node", `edge-${i}`, "--nats-url", `nats://${nats}`, "--http", `127.0.0.1:${http}`, "--log-level", "error",
      "--gossip-bind", `127.0.0.1:${bind}`, "--gossip-join", gossip.map((port) => `127.0.0.1:${port}`).join(), "--gossip-key-file", key,
      "--session-durability", "log", "--redis", `redis://127.0.0.1:${redis}`, "--forward-listen", `127.0.0.1:${forward}`,
      "--listen", `udp://127.0.0.${i + 1}:${udp}`, "--websocket-origins", origin,
      ...(hash.length > 0 ? ["--webtransport", `127.0.0.1:${web}`, "--tls-cert", join(dir, "cert.pem"), "--tls-key", join(dir, "key.pem")] : ["--websocket", `127.0.0.1:${tcp}`])]);
    for (let ready = false; !ready; ) {
      assert.equal(process.exitCode, null, "the edge runs");
      ready = await fetch(`http://127.0.0.1:${http}/readyz`).then((answer) => answer.ok, () => false);
      if (!ready) await pause(50);
    }
    return { process, port: hash.length > 0 ? web! : tcp! };
  });
  return { edges: await Promise.all(all), hash };
}

/** certificate makes cert.pem and key.pem in a folder, such as browsers trust by the hash, which it returns. */
function certificate(dir: string): number[] {
  const goroot = execFileSync("go", ["env", "GOROOT"]).toString().trim();
  execFileSync("go", ["run", join(goroot, "src/crypto/tls/generate_cert.go"), "--ecdsa-curve", "P256", "--duration", "240h", "--host", "127.0.0.1"], { cwd: dir, stdio: "ignore" });
  return [...createHash("sha256").update(new X509Certificate(readFileSync(join(dir, "cert.pem"))).raw).digest()];
}

for (const transport of ["webtransport", "websocket"] as const) {
  test(`an edge leaves, and a page goes on at another one (${transport})`, { timeout: 2 * patience, skip }, async (t) => {
    buildEdge();
    const dev = await start("--no-demo");
    const home = new URL(await dev.page());
    await dev.dnpctl("publish", "demo", "door", "open:uint8=0");
    const { edges: [first, second], hash } = await edges(t, dev.nats, home.origin, transport);
    const proxy = await (transport === "websocket" ? Proxy : DatagramProxy).start(t, first!.port);

    const { page, carriers, errors } = await open(home.href);
    await page.waitForFunction(() => client.states.has("door")); // from the edge that serves the page
    carriers.length = 0;
    await page.evaluate(async (port, hash, transport) => {
      client.close();
      const { connect } = (await import("/dnprelay.js" as string)) as typeof import("../../src/index.js");
      const scheme = transport === "websocket" ? "http" : "https";
      const serverCertificateHashes = [{ algorithm: "sha-256", value: Uint8Array.from(hash) }];
      const happened: string[] = [];
      globalThis.client = connect(`${scheme}://127.0.0.1:${port}`, { transport, ...(hash.length > 0 && { webTransport: { serverCertificateHashes } }) });
      client.on("open", () => void happened.push("open"));
      client.on("unlink", () => void happened.push("unlink"));
      client.on("close", ({ reason, detail }) => void happened.push(`${reason} ${detail}`));
      client.on("link", (door) => void Object.assign(globalThis, { door }));
      Object.assign(globalThis, { happened });
    }, proxy.port, hash, transport);
    await page.waitForFunction("globalThis.door");
    proxy.move(second!.port);
    const left = performance.now();
    first!.process.kill("SIGTERM");
    while (carriers.length < 2) await pause(10);
    t.diagnostic(`the page is at the other edge ${Math.round(performance.now() - left)} ms after the first one was told to leave`);
    await dev.dnpctl("publish", "demo", "door", "open=1");
    await page.waitForFunction("door.get(0) === 1"); // the same State: the session went on
    assert.deepEqual([await page.evaluate("happened"), carriers, errors], [["open"], [transport, transport], []]);
    await screenshot(page, `page-left-${transport}`);
    await page.close();
  });
}

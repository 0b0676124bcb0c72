/**
 * Deliberate faults, each in one function, which break what a page of the project promises. A fault names the function, not the
 * file, so functions may move. Each has to find its place, which this checks in a moment. `npm run mutants` puts them into the
 * compiled package, one at a time, and expects the test to notice each. MUTANTS chooses some, by a regular expression. With those
 * in Go (internal/mutants) there are at most 80.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { transformSync } from "esbuild";
import ts from "typescript";

/** `func` is "function" or "Class.method", `by` the file of tests that must notice. */
const mutants: { guards: string; func: string; old: string; fault: string; by: string }[] = [
  { guards: "INTERFACES: a client is never shown an older value after a newer one",
    func: "Writes.value", old: "if (older(order, link.orders[index] ?? unordered)) return;", fault: "", by: "writes" },
  { guards: "INTERFACES: a client that connects again gets all states, and game servers its own",
    func: "Client.#begin", old: "for (const state of this.#own) connection.offer(state);", fault: "", by: "client" },
  { guards: "SECURITY: messages of an application that look like commands are none",
    func: "Commands.outgoing", old: "return this.#said ? raw(data) : data;", fault: "return data;", by: "command" },
  { guards: "DESIGN: a reliable command that comes again is acknowledged again, so that the edge knows that it arrived",
    func: "Connection.#receiveReliable", old: "this.#answer(reliableAck(number));", fault: "if (arrival !== \"repeat\") this.#answer(reliableAck(number));", by: "connection" },
  { guards: "DESIGN: every queue has a bound",
    func: "WebSocketTransport.send", old: "socket.bufferedAmount + datagram.length <= bufferMax", fault: "true", by: "transport" },
];

const folder = fileURLToPath(new URL("../../src/", import.meta.url));
const compiled = (file: string): string => fileURLToPath(new URL(`../src/${file.replace(/ts$/, "js")}`, import.meta.url));
const chosen = process.env["MUTANTS"]; // a regular expression

/** name returns the name of a function or method, with its class. */
function name(node: ts.Node): string | undefined {
  if (ts.isFunctionDeclaration(node)) return node.name?.text;
  return ts.isMethodDeclaration(node) && ts.isClassDeclaration(node.parent) ? `${node.parent.name?.text}.${node.name.getText()}` : undefined;
}

/** apply returns the file with the fault, and its name. */
function apply(func: string, old: string, fault: string): [file: string, text: string] {
  const found: [string, string][] = [];
  for (const file of readdirSync(folder)) {
    const source = ts.createSourceFile(file, readFileSync(folder + file, "utf8"), ts.ScriptTarget.ES2022, true);
    const visit = (node: ts.Node): void => {
      if (name(node) === func) {
        const parts = node.getText().split(old);
        assert.equal(parts.length, 2, `${func} in ${file}, times that it has ${old}:`);
        found.push([file, source.text.slice(0, node.getStart()) + parts.join(fault) + source.text.slice(node.end)]);
      }
      ts.forEachChild(node, visit);
    };
    visit(source);
  }
  assert.equal(found.length, 1, `functions ${func} (was it renamed?):`);
  return found[0]!;
}

test("each deliberate fault finds its place", () => {
  for (const m of mutants) apply(m.func, m.old, m.fault);
});

test("the tests notice each deliberate fault", { skip: chosen ? false : "npm run mutants does that" }, async (t) => {
  const env: NodeJS.ProcessEnv = { ...process.env };
  delete env["NODE_TEST_CONTEXT"]; // this is a run of its own
  for (const m of mutants.filter((m) => new RegExp(chosen!).test(m.guards + m.func))) {
    const [file, text] = apply(m.func, m.old, m.fault);
    const run = () => spawnSync(process.execPath, ["--test", fileURLToPath(new URL(`${m.by}.test.js`, import.meta.url))], { env, timeout: 120_000 }).status;
    const before = readFileSync(compiled(file));
    await t.test(`${m.func}: ${m.guards}`, () => {
      assert.equal(run(), 0, `${m.by}.test.ts fails without the fault`);
      try {
        writeFileSync(compiled(file), transformSync(text, { loader: "ts", target: "es2022" }).code);
        assert.equal(run(), 1, "no test notices it");
      } finally {
        writeFileSync(compiled(file), before);
      }
    });
  }
});

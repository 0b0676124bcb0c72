/**
 * Deliberate faults of one line. Each has to find its line, which this checks in a moment. `npm run mutants`
 * puts them into the compiled package, one at a time, and expects the other tests to notice each. MUTANTS
 * chooses some, by a regular expression.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { transformSync } from "esbuild";

const mutants: [file: string, line: string, fault: string][] = [
  ["value.ts", "if (width === 2) view.setUint16(at, toHalf(f), true);", "if (width === 2) view.setUint16(at, toHalf(f) + 1, true);"],
  ["value.ts", "rest > 0.5 || (rest === 0.5 && low % 2 === 1)", "rest >= 0.5"],
  ["value.ts", "bytes = value.length > 0 ? value : new Uint8Array(1)", "bytes = value"],
  ["wire.ts", "export const modulus = 65_535;", "export const modulus = 65_536;"],
  ["wire.ts", "readOnly: p[5] === readOnlyFlag,", "readOnly: (p[5]! & readOnlyFlag) !== 0,"],
  ["wire.ts", "if (size < 0) return undefined; // a count", "if (size < 0) break; // a count"],
  ["wire.ts", "const countMax = 127;", "const countMax = 255;"],
  ["wire.ts", "if (end < 0) return -1;", "if (end < 0) continue;"],
  ["sendwindow.ts", "const windowSize = 10;", "const windowSize = 11;"],
  ["sendwindow.ts", "if (now < this.#resendAt(o, copies)) continue;", "if (now < o.last + resendMost) continue;"],
  ["sendwindow.ts", "this.trip.longest * 2 **", "this.trip.longest * 1 **"],
  ["sendwindow.ts", "if (!this.answered || now - this.heard >= resendMost) return 1;", ""],
  ["sendwindow.ts", "2 * (now - o.last) < this.trip.least", "2 * (now - o.last) < this.trip.mean"],
  ["sendwindow.ts", "o.first >= this.#heldUntil", "true"],
  ["command.ts", "if (!this.#asked || !isEnvelope(data)) return data;", "if (!isEnvelope(data)) return data;"],
  ["command.ts", "if (this.granted === undefined) return data;", ""],
  ["command.ts", "return this.#said ? raw(data) : data;", "return data;"],
  ["command.ts", ">= window) return false;", ">= 999) return false;"],
  ["command.ts", "return this.#open.size < outstandingMax;", "return true;"],
  ["connection.ts", "if (!this.#window.idle) return Infinity;", ""],
  ["sendwindow.ts", "if (now >= this.#givesUpAt(o)) return false;", ""],
  ["sendwindow.ts", "this.#patientUntil = now;", ""],
  ["sendwindow.ts", "this.#queue.push(copy(data));", "this.#queue.push(data);"],
  ["recvwindow.ts", "const aheadMax = 16;", "const aheadMax = 17;"],
  ["recvwindow.ts", "this.#held.set(unwrap(number, this.#next), copy(datagram));", "this.#held.set(unwrap(number, this.#next), datagram);"],
  ["recvwindow.ts", "if (n < this.#next || this.#held.has(n)) return \"repeat\";", "if (n < this.#next) return \"outside\";"],
  ["recvwindow.ts", "if (!this.#parts) return undefined;", "this.#parts ??= [];"],
  ["links.ts", "const repeatSteps = [0, 60, 180, 500, 1500];", "const repeatSteps = [0];"],
  ["links.ts", "if (m.types.length === 0 ||", "if ("],
  ["links.ts", "if (!link && id < this.#nextID) this.#takeDown(id);", ""],
  ["links.ts", "while (this.#links.has(this.#nextID)) this.#nextID++;", ""],
  ["links.ts", "    this.#ups.delete(id);\n    return", "    return"],
  ["links.ts", "this.#repeatAt = Math.min(this.#repeatAt, now + upSteps[1]!);", ""],
  ["links.ts", "if (sent === upsPerFlush) {", "if (false) {"],
  ["connection.ts", "if (arrival !== \"due\") this.#troubled = this.#now;", ""],
  ["connection.ts", "this.#probed = now;", ""],
  ["links.ts", "this.#flushAt = now + this.interval;", ""],
  ["connection.ts", "this.#answer(reliableAck(number));", "if (arrival !== \"repeat\") this.#answer(reliableAck(number));"],
  ["connection.ts", "if (login) this.#window.add((number) => reliableMessage(number, login));", "if (login) this.#window.send(login);"],
  ["connection.ts", "if (now - this.#now > stallMin &&", "if (false &&"],
  ["connection.ts", "      this.#window.probe();\n    }", "    }"],
  ["connection.ts", "if (this.#requests === 1) this.#window.trip.sample(this.#now - this.#requested);", ""],
  ["connection.ts", "this.#loggingIn && !this.#window.answered ? \"refused\" : \"peer\"", "\"peer\""],
  ["connection.ts", "(p[0] === Command.linkState && !parseLinkState(p))", "false"],
  ["budget.ts", "return this.#bytes > 0 && this.#datagrams >= 1;", "return true;"],
  ["state.ts", "if (this.equals(i, p, at, size)) return false;", ""],
  ["state.ts", "if (this.#fresh[i] === 0) this.#decode(i);", "this.#decode(i);"],
  ["state.ts", "(this.#decoded[i] ??= newComponents(type))", "(this.#decoded[i] = newComponents(type))"],
  ["past.ts", "const turn = n === 4 ? this.#turn(from, to) : 1;", "const turn = 1;"],
  ["past.ts", "if (since > track.newest) track.push(since, this.state, i);", ""],
  ["past.ts", "this.#interval + jitters * this.#deviation", "this.#interval"],
  ["past.ts", "if (gap === 0) return this.#began;", ""],
  ["past.ts", "Math.max(now, this.#stamp + this.#interval / 2)", "now"],
  ["client.ts", "if (this.#transport !== transport) return; // it is closing", ""],
  ["client.ts", "for (const state of this.#own) connection.offer(state);", ""],
  ["client.ts", "if (this.open) this.#lost(said ?? { code: lost, reason: detail }); // a session", "if (false) return; // a session"],
  ["client.ts", "info.code !== CloseCode.unknown && ", ""],
  ["client.ts", "(info.code !== CloseCode.replaced || ours)", "true"],
  ["client.ts", "(info.code !== CloseCode.replaced || ours)", "info.code !== CloseCode.replaced"],
  ["client.ts", "if (info.code === CloseCode.over) connection.receive(this.#clock.now(), connectionClose());", ""],
  ["client.ts", "    this.#resume = undefined;\n    this.#settle();", "    this.#settle();"],
  ["client.ts", "if (this.#clock.now() - this.#attachedAt >= steadyAfter) this.#attempts = 0;", ""],
  ["client.ts", "this.#clock.now() - this.#attachedAt >= steadyAfter", "true"],
  ["client.ts", "if (info) transport.onClose(info);", ""],
  ["client.ts", "if (spokenBy(error)) break;", ""],
  ["client.ts", "last ? dialTimeout : dialTimeoutFirst", "dialTimeout"],
  ["client.ts", "n === 0 ? 0 : backoff(n - 1, random)", "0"],
  ["connection.ts", "this.#links.resume(this.#window.heard, ordered);", ""],
  ["connection.ts", "if (this.#window.idle) this.#window.probe();", ""],
  ["connection.ts", "this.#window.answered && now >=", "now >="],
  ["sendwindow.ts", "      o.last = -Infinity;\n    }", "    }"],
  ["sendwindow.ts", "o.sends = Math.max(o.sends, 2);", ""],
  ["links.ts", "Number.isNaN(r.due) && heard > r.first + repeatsTake", "Number.isNaN(r.due)"],
  ["links.ts", "if (links === p.length || (links < 0 && this.writes.mode !== \"numbered\")) return;", ""],
  ["links.ts", "if (this.writes.mode !== \"numbered\") this.events.granted();", ""],
  ["links.ts", "this.writes.lose(link);", ""],
  ["links.ts", "this.writes.offered(link, link.offered);", ""],
  ["writes.ts", "if (older(order, link.orders[index] ?? unordered)) return;", ""],
  ["writes.ts", "link.orders[index] = order;\n    const w", "const w"],
  ["writes.ts", "if (w) w.stash = copy(p, at, at + size);", "if (w) return;"],
  ["writes.ts", "if (overtaken) link.orders[index] = order;", ""],
  ["writes.ts", "if (!stash || (overtaken && !refusal)) continue;", "if (!stash) continue;"],
  ["writes.ts", "if (!stash || (overtaken && !refusal)) continue;", "if (!stash || overtaken) continue;"],
  ["writes.ts", "    this.#leave(w);\n    if (link.up)", "    if (link.up)"],
  ["writes.ts", "if (w.batch !== batch) continue;", ""],
  ["writes.ts", "this.#backedOff = batch.repeated ? batch.pause : 0;", ""],
  ["writes.ts", "if (!batch.repeated) this.#trip.sample", "this.#trip.sample"],
  ["writes.ts", "if (this.ordered) return pauseMost;", ""],
  ["writes.ts", "batch.pause = Math.min(pauseMost, 2 * batch.pause);", ";"],
  ["writes.ts", "if (this.#again) return this.#again.number;", ""],
  ["writes.ts", "if (link.up) this.#waiting.add(w);", "this.#waiting.add(w);"],
  ["wire.ts", "if (links < 0 ? at < 2 : at !== links) return undefined;", ""],
  ["wire.ts", "a.generation < b.generation || ", ""],
  ["wire.ts", "const numberedMax = 32;", "const numberedMax = 33;"],
  ["connection.ts", "if (this.#links.writes.mode === \"waiting\") this.#answerBy", "this.#answerBy"],
  ["connection.ts", "if (now >= this.#answerBy) this.#unanswered();", ""],
  ["websocket.ts", "readonly ordered = true;", "readonly ordered = false;"],
  ["webtransport.ts", "if (info) return this.#end(info);", ""],
  ["info.ts", "if (text.length > textMax) return undefined;", ""],
  ["session.ts", "tokenPattern.test(token)", "true"],
  ["websocket.ts", "[subprotocol, ...resume]", "[subprotocol]"],
  ["webtransport.ts", "resume ?? \"\"", "\"\""],
  ["webtransport.ts", "if (isPlain(url)) throw", "if (false) throw"],
  ["client.ts", "if (this.#closed || (resumed && !this.open)) {", "if (this.#closed) {"],
  ["client.ts", "&& !refused;", ";"],
  ["leave.ts", "if (answersLeave(p)) finish();", ""],
  ["leave.ts", "transport.onClose = end;", ""],
  ["wire.ts", "(p.length === 2 && p[0] === Command.linkUpdate && p[1] === 0)", "p[0] === Command.linkUpdate"],
  ["client.ts", "this.open && !transport.ordered", "this.open"],
  ["sendwindow.ts", "if (this.#partAt > 0) begun.delete(this.#message);", ""],
  ["emitter.ts", "report(error);", "throw error;"],
  ["websocket.ts", "socket.bufferedAmount + datagram.length <= bufferMax", "true"],
  ["webtransport.ts", "connection.datagrams.incomingHighWaterMark = incomingMax;", ""],
  ["webtransport.ts", "if (length > 0) this.take", "this.take"],
];

const source = (file: string): string => fileURLToPath(new URL(`../../src/${file}`, import.meta.url));
const compiled = (file: string): string => fileURLToPath(new URL(`../src/${file.replace(/ts$/, "js")}`, import.meta.url));
const chosen = process.env["MUTANTS"]; // a regular expression

test("each deliberate fault finds its line", () => {
  for (const [file, line] of mutants) {
    assert.equal(readFileSync(source(file), "utf8").split(line).length - 1, 1, `${file}: ${line}`);
  }
});

test("the tests notice each deliberate fault", { skip: chosen ? false : "npm run mutants does that" }, async (t) => {
  const tests = ["client", "command", "codec", "connection", "network", "state", "transport", "vectors", "writerandom", "writes"];
  const args = ["--test", ...tests.map((name) => fileURLToPath(new URL(`${name}.test.js`, import.meta.url)))];
  const env: NodeJS.ProcessEnv = { ...process.env };
  delete env["NODE_TEST_CONTEXT"]; // this is a run of its own
  for (const [file, line, fault] of mutants.filter((m) => new RegExp(chosen!).test(m.join(" ")))) {
    const before = readFileSync(compiled(file));
    try {
      const mutant = readFileSync(source(file), "utf8").replace(line, () => fault);
      writeFileSync(compiled(file), transformSync(mutant, { loader: "ts", target: "es2022" }).code);
      const { status } = spawnSync(process.execPath, args, { env, timeout: 120_000 });
      await t.test(`${file}: ${line} -> ${fault}`, () => assert.notEqual(status, 0, "no test notices it"));
    } finally {
      writeFileSync(compiled(file), before);
    }
  }
});

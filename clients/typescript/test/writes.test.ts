/** The transcripts of ../../testdata/writes.txt, which all clients play. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Connection } from "../src/connection.js";
import { Layout, State } from "../src/state.js";
import { typeNamed } from "../src/value.js";
import { WriteError } from "../src/writes.js";
import { hex, unhex } from "./bytes.js";

const file = new URL("../../../testdata/writes.txt", import.meta.url);
const lampOffer = "05 0100 0080 00 0400 6c616d70 0200 01 01 01 02";
const granted = "04 0000 c5 81 0000 00 03000000";

/** A Player plays one transcript. */
class Player {
  #connection!: Connection;
  #now = 0;
  readonly #states = new Map<string, State>();
  readonly #own = new Map<string, State>();
  readonly #promises = new Set<Promise<void>>();
  #sent: string[] = [];
  #reliable: string[] = [];
  #changed: string[] = [];
  #done: string[] = [];

  async play(line: string): Promise<void> {
    const [time, verb, ...args] = line.split(" ");
    this.#at(Number(time));
    const rest = args.join(" ");
    switch (verb) {
      case "connect": this.#connect(args); break;
      case "play":
        this.#connect(args);
        for (const p of ["06 0000 00", granted, lampOffer]) this.#connection.receive(this.#now, unhex(p));
        break;
      case "recv": this.#connection.receive(this.#now, unhex(rest)); break;
      case "set":
        for (let i = 0; i < args.length; i += 3) this.#set(args[i]!, Number(args[i + 1]), Number(args[i + 2]));
        break;
      case "churn":
        for (let i = 0; i < Number(args[2]); i++) {
          this.#at(Number(time) + 30 * i);
          this.#set(args[0]!, Number(args[1]), i + 2);
          this.#connection.advance(this.#now);
        }
        this.#sent = [];
        break;
      case "offer": this.#offer(args[0]!, Number(args[1])); break;
      case "withdraw": this.#connection.withdraw(this.#own.get(rest)!); break;
      case "resume": this.#connection.resume(this.#now, rest === "ordered"); break;
      case "close": this.#connection.close(); break;
      default: return this.#check(verb!, rest, line);
    }
    this.#connection.advance(this.#now);
  }

  async #check(verb: string, want: string, line: string): Promise<void> {
    await new Promise(setImmediate); // what waits for promises
    const got = { sent: this.#sent, changed: this.#changed, done: this.#done, reliable: this.#reliable.slice(0, 1) }[verb];
    if (verb === "value") {
      const [key, index, value] = want.split(" ");
      assert.equal(String(this.#state(key!).get(Number(index))), value, line);
      return;
    }
    assert.ok(got, `no verb ${verb}`);
    if (verb === "sent") assert.deepEqual(got, want === "" ? [] : want.split(", ").map((p) => hex(unhex(p))), line);
    else if (verb === "reliable") assert.equal(got.join(), hex(unhex(want)), line);
    else assert.equal(got.join(" "), want, line);
    got.splice(0);
    if (verb === "sent") this.#sent = [];
  }

  #state(key: string): State {
    return this.#states.get(key) ?? this.#own.get(key)!;
  }

  /** at goes to a time, and does what is due before. */
  #at(now: number): void {
    for (let t; this.#connection && (t = this.#connection.nextTimeout()) <= now && this.#now < now; ) {
      this.#now = Math.min(now, Math.max(this.#now + 1, Math.ceil(t)));
      this.#connection.advance(this.#now);
    }
    this.#now = now;
  }

  #connect(args: string[]): void {
    this.#connection = new Connection({ plain: args.includes("plain"), ordered: args.includes("ordered") }, {
      send: (p) => {
        if (p[0] === 9) this.#sent.push(hex(p));
        if (p[0] === 4) this.#reliable.push(hex(p));
      },
      ready() {},
      connected() {},
      closed() {},
      message: (data) => assert.fail(`the program gets the message ${hex(data)}`),
      linked: (state) => this.#states.set(state.key, state),
      changed: (state, index) => this.#changed.push(`${state.key} ${index} ${String(state.get(index))}`),
      unlinked() {},
    });
    this.#connection.advance(this.#now);
    this.#connection.receive(this.#now, unhex("01 00 0000"));
  }

  #set(key: string, index: number, value: number): void {
    const promise = this.#state(key).set(index, value);
    if (this.#promises.has(promise)) return;
    this.#promises.add(promise);
    promise.then(() => "ok", (e: unknown) => (e as WriteError).code).then((result) => this.#done.push(`${key} ${index} ${result}`));
  }

  #offer(key: string, value: number): void {
    const layout = new Layout([typeNamed("uint8")]);
    const state = new State({ key, message: new TextEncoder().encode(key), layout, values: [Uint8Array.of(value)], own: true, writable: true });
    this.#own.set(key, state);
    this.#connection.offer(state);
  }
}

for (const transcript of readFileSync(file, "utf8").split(/^== /m).slice(1)) {
  const [title, ...lines] = transcript.split("\n");
  test(title!, async () => {
    const player = new Player();
    for (const line of lines) if (line !== "") await player.play(line);
  });
}

test("a handler of a change writes a value again whose acknowledgement is being handled", () => {
  const sent: string[] = [];
  let lamp!: State;
  const connection = new Connection({}, {
    send: (p) => void (p[0] === 9 && sent.push(hex(p))),
    ready() {},
    connected() {},
    closed() {},
    message() {},
    linked: (state) => (lamp = state),
    changed: () => void lamp.set(1, 99),
    unlinked() {},
  });
  connection.advance(0);
  for (const p of ["01 00 0000", granted, lampOffer]) connection.receive(0, unhex(p));
  void lamp.set(0, 7);
  void lamp.set(1, 8);
  connection.advance(10);
  connection.receive(20, unhex("09 01 0080 01 0000 09 01 01 02"));
  connection.receive(30, unhex("09 00 01 02 01 01 0080 0000 02 09"));
  connection.advance(50);
  assert.deepEqual(sent.map((p) => hex(unhex(p))), ["0901008002000007" + "010008" + "01", "09010080010100" + "63" + "02"]);
});

test("nobody has to look at the end of a write", async () => {
  const layout = new Layout([typeNamed("uint8")]);
  const state = new State({ key: "me", message: Uint8Array.of(1), layout, values: [Uint8Array.of(3)], own: true, writable: true });
  const heard: unknown[] = [];
  const listen = (reason: unknown): void => void heard.push(reason);
  process.on("unhandledRejection", listen);
  void state.set(0, 4);
  await new Promise(setImmediate);
  process.off("unhandledRejection", listen);
  assert.deepEqual(heard, []);
  await assert.rejects(state.set(0, 5), { name: "WriteError", code: "lost" });
});

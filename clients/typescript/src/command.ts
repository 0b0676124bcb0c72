/**
 * Commands: a client asks the game server to do something with a state, and gets one answer. They travel
 * in reliable messages, as envelopes that begin with 0xC5, once the client has said hello. Package
 * dnp/command of the Go module has the form and the rules.
 */
import { concat, copy } from "./bytes.js";
import { u16 } from "./wire.js";

const mark = 0xc5;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** What an edge may grant. */
export const capCommands = 1;
export const capWrites = 2;

const opening = Uint8Array.of(mark, 0, ...encoder.encode("dnp.command.v1"));

/** The message by which a client asks for commands and for writes with numbers. Its answer has the id 0. @internal */
export const hello = concat([opening, Uint8Array.of(capCommands | capWrites, 0, 0, 0)]);

/** The hello that asks for commands only, of a client that does not know whether its server is an edge. @internal */
export const helloPlain = opening;

const kindRequest = 1;
const kindRaw = 2;
const kindAnswer = 0x81;

/** Bounds: of ids without an answer, of how far they may be apart, and of what waits besides. */
const outstandingMax = 16;
const window = 64;
const waitingMax = 256;
const nameMax = 64;
const bodyMax = 60_000;

/** After so many ms a command that the application gave up no longer counts as one without an answer. */
const abandonedTime = 60_000;

const codes = [
  "ok", "bad_request", "unknown_state", "not_authorised", "busy", "no_responders", "timeout", "too_large", "unavailable", "unknown_command", "failed",
] as const;

/** Why a command was not executed; after "timeout" it may have been. "ended": the connection ended. "failed": the game says why. */
export type CommandCode = Exclude<(typeof codes)[number], "ok"> | "ended";

/** A CommandError says why a command has no result. */
export class CommandError extends Error {
  constructor(readonly code: CommandCode, text: string) {
    super(text === "" || text === code ? `the command was refused: ${code}` : `the command was refused: ${code}: ${text}`);
    this.name = "CommandError";
  }
}

/** @internal */
export interface Answer {
  readonly id: number;
  readonly code: (typeof codes)[number];
  readonly body: Uint8Array;
}

/** requestByLink returns the envelope of a request about the state of a link. @internal */
export function requestByLink(id: number, link: number, name: string, body: Uint8Array): Uint8Array {
  return request(id, Uint8Array.of(1, link & 0xff, link >> 8), name, body);
}

/** requestByKey returns the envelope of a request about the state with a key. @internal */
export function requestByKey(id: number, key: string, name: string, body: Uint8Array): Uint8Array {
  const k = encoder.encode(key);
  return request(id, Uint8Array.of(0, k.length & 0xff, k.length >> 8, ...k), name, body);
}

function request(id: number, target: Uint8Array, name: string, body: Uint8Array): Uint8Array {
  const n = encoder.encode(name);
  if (n.length === 0 || n.length > nameMax) throw new RangeError(`command: the name has ${n.length} bytes, want 1 to ${nameMax}`);
  if (body.length > bodyMax) throw new RangeError(`command: the body has ${body.length} bytes, at most ${bodyMax}`);
  return concat([Uint8Array.of(mark, kindRequest, id, id >> 8), target, Uint8Array.of(n.length), n, body]);
}

/** isEnvelope reports whether a message begins like an envelope. @internal */
export const isEnvelope = (p: Uint8Array): boolean => p.length > 0 && p[0] === mark;

/** raw puts a message of the application into an envelope if it begins like one. @internal */
export const raw = (p: Uint8Array): Uint8Array => (isEnvelope(p) ? Uint8Array.of(mark, kindRaw, ...p) : p);

/** parseRaw returns the application's message in an envelope; undefined for another envelope. @internal */
export const parseRaw = (p: Uint8Array): Uint8Array | undefined => (isEnvelope(p) && p[1] === kindRaw ? p.subarray(2) : undefined);

/** parseAnswer returns the answer in an envelope, which is a copy; undefined for another envelope. @internal */
export function parseAnswer(p: Uint8Array): Answer | undefined {
  if (!isEnvelope(p) || p[1] !== kindAnswer || p.length < 5) return undefined;
  return { id: u16(p, 2), code: codes[p[4]!] ?? "failed", body: copy(p, 5) };
}

interface Pending {
  readonly link: () => number | undefined;
  readonly name: string;
  readonly body: Uint8Array;
  readonly resolve: (body: Uint8Array) => void;
  readonly reject: (error: unknown) => void;
  abandoned: number; // when the application gave it up; Infinity before
}

/** Commands are the commands of a connection, which calls it with the time. @internal */
export class Commands {
  /** What the edge grants; undefined before its answer. */
  granted: number | undefined;
  #asked: boolean; // an answer may come
  #said: boolean; // the edge is one that has answered, or will
  #last = 0;
  readonly #open = new Map<number, Pending>(); // by id
  #waiting: Pending[] = [];

  /**
   * `send` sends a reliable message; it throws if too much waits. `ready` says that `advance` is due. If the hello was not
   * `said` with the login, it goes before the first command.
   */
  constructor(private readonly send: (data: Uint8Array) => void, private readonly ready: () => void, said: boolean) {
    this.#asked = this.#said = said;
  }

  /** answered notes that the server is an edge. */
  answered(): void {
    this.#said = true;
  }

  /** unanswered notes that the server does not answer the hello. Messages of the application stay as they are. */
  unanswered(): void {
    this.#said = false;
  }

  /** command sends a command about the state whose LinkId `link` returns, and gives its answer. */
  command(link: () => number | undefined, name: string, body: Uint8Array, signal: AbortSignal | undefined, now: () => number): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      requestByLink(0, 0, name, body); // throws what cannot be sent
      if (this.#waiting.length >= waitingMax) throw new CommandError("busy", "too many commands wait");
      const p: Pending = { link, name, body: copy(body), resolve, reject, abandoned: Infinity };
      this.#waiting.push(p);
      signal?.addEventListener("abort", () => {
        this.#waiting = this.#waiting.filter((other) => other !== p);
        p.abandoned = now();
        reject(signal.reason);
      }, { once: true });
      this.ready();
    });
  }

  /** advance sends what waits. */
  advance(now: number): void {
    if (this.#waiting.length === 0) return;
    try {
      if (!this.#said) this.send(helloPlain);
      this.#said = this.#asked = true;
      while (this.#takesCommands && this.#waiting.length > 0 && this.#room(now)) this.#request(this.#waiting[0]!);
    } catch {
      // Too much waits to be sent. The next advance tries again.
    }
  }

  #request(p: Pending): void {
    const link = p.link();
    const id = this.#next();
    if (link !== undefined) {
      this.send(requestByLink(id, link, p.name, p.body));
      this.#last = id;
      this.#open.set(id, p);
    } else p.reject(new CommandError("unknown_state", "the state has no link"));
    this.#waiting.shift();
  }

  get #takesCommands(): boolean {
    return ((this.granted ?? 0) & capCommands) !== 0;
  }

  /** next returns the id of the next request: 0 is the hello. */
  #next(): number {
    return this.#last === 0xffff ? 1 : this.#last + 1;
  }

  #room(now: number): boolean {
    for (const [id, p] of this.#open) {
      if (now - p.abandoned > abandonedTime) this.#open.delete(id);
      else if (((this.#next() - id) & 0xffff) >= window) return false;
    }
    return this.#open.size < outstandingMax;
  }

  /** outgoing returns how a message of the application is sent. */
  outgoing(data: Uint8Array): Uint8Array {
    return this.#said ? raw(data) : data;
  }

  /** incoming returns the application's message in a reliable message of the edge; undefined if there is none. */
  incoming(data: Uint8Array): Uint8Array | undefined {
    if (!this.#asked || !isEnvelope(data)) return data;
    const answer = parseAnswer(data);
    if (answer?.id === 0) {
      this.granted = answer.body.length < 4 ? capCommands : answer.body[0]!;
      this.ready();
      return undefined;
    }
    if (this.granted === undefined) return data;
    if (!answer) return parseRaw(data);
    const p = this.#open.get(answer.id);
    this.#open.delete(answer.id);
    if (answer.code === "ok") p?.resolve(answer.body);
    else p?.reject(new CommandError(answer.code, decoder.decode(answer.body)));
    this.ready(); // others may wait
    return undefined;
  }

  /** end refuses what has no answer. */
  end(): void {
    const all = [...this.#open.values(), ...this.#waiting];
    this.#open.clear();
    this.#waiting = [];
    for (const p of all) p.reject(new CommandError("ended", "the connection ended; the command may have been executed"));
  }
}

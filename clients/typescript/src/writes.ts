/**
 * The writes of a connection. An edge that grants them knows each LinkUpdate of this client by its number, which the relay
 * applies once. So a repeat does no harm, and goes on until the edge acknowledges the number.
 */
import { copy } from "./bytes.js";
import { RoundTrip } from "./sendwindow.js";
import type { State } from "./state.js";
import { older, UpdateWriter, unordered, type Acknowledgement, type Order } from "./wire.js";

const codes = ["refused", "not_authorised", "bounds", "rate", "no_state", "busy"] as const;

/**
 * Why a write has no effect. "bounds": the value is out of its range, or too precise. "rate": the client writes too
 * often. "busy": the edge has no room for it. "lost": the link or the connection ended, and nobody knows.
 */
export type WriteCode = (typeof codes)[number] | "lost";

/** A WriteError says why a value that the client set is not that of the state. */
export class WriteError extends Error {
  constructor(readonly code: WriteCode) {
    super(code === "lost" ? "the write was lost with the link or the connection" : `the write was refused: ${code}`);
    this.name = "WriteError";
  }
}

/** failed returns a promise that rejects. It is no unhandled rejection where the application does not look at it. */
export function failed(code: WriteCode): Promise<void> {
  const promise = Promise.reject(new WriteError(code));
  promise.catch(() => {});
  return promise;
}

/** Pauses in ms before a repeat. */
const pauseFirst = 300; // before anything was acknowledged
const pauseLeast = 60;
const pauseMost = 2_000;

/** A LinkTable tells what a link is to the writes. */
export interface WriteLink {
  readonly id: number;
  readonly state: State;
  readonly up: boolean;
  /** Writes that are not acknowledged, by the index of the value. */
  readonly writes: Map<number, Write>;
  /** By the index of the value: the newest LinkUpdate from which the edge's value was taken. */
  readonly orders: Order[];
}

/** A Write is a value that the application set, until the edge has acknowledged it. */
export class Write {
  batch: Batch | undefined; // undefined: it waits
  stash: Uint8Array | undefined; // what the edge sent meanwhile
  readonly done: Promise<void>;
  #resolve!: () => void;
  #reject!: (error: WriteError) => void;

  constructor(readonly link: WriteLink, readonly index: number) {
    this.done = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.done.catch(() => {}); // the application need not look at it
  }

  end(code?: WriteCode): void {
    if (code === undefined) this.#resolve();
    else this.#reject(new WriteError(code));
  }
}

/** A Batch is the writes that were first sent in one datagram, without those that were overwritten. */
interface Batch {
  readonly number: number;
  readonly first: number;
  readonly writes: Set<Write>;
  due: number; // when it goes again
  pause: number;
  repeated: boolean;
}

/** "waiting": the edge has not said whether it knows numbers. "plain": it does not, so each write goes once. */
type Mode = "waiting" | "numbered" | "plain";

/** Writes are the pending writes of a connection, and the values of the edge that meet them. */
export class Writes {
  mode: Mode = "waiting";
  /** Whether the transport loses nothing while it lasts. */
  ordered = false;

  readonly #waiting = new Set<Write>();
  readonly #batches = new Map<number, Batch>();
  readonly #updates: UpdateWriter;
  readonly #trip = new RoundTrip();
  #backedOff = 0; // the pause of the latest number that was repeated, while no other was acknowledged
  #next = 1;
  #batch: Batch | undefined; // of the datagram under way
  #again: Batch | undefined; // the datagram under way is a repeat
  #now = 0;
  #generation = 0; // of the newest edge that was heard
  #sendAt = -Infinity; // no values that were set before

  constructor(datagramMax: number, private readonly interval: number, send: (datagram: Uint8Array) => void, private readonly changed: (state: State, index: number) => void) {
    this.#updates = new UpdateWriter(datagramMax, send, () => this.#begin());
  }

  /** write notes that the application set a value. An earlier write of the value ends as this one does. */
  write(link: WriteLink, index: number): Promise<void> {
    let w = link.writes.get(index);
    if (!w) link.writes.set(index, (w = new Write(link, index)));
    this.#leave(w);
    if (link.up) this.#waiting.add(w);
    return w.done;
  }

  /** offered ends the writes of an own state that came before its link, unless they differ from what was offered. */
  offered(link: WriteLink, values: readonly Uint8Array[]): void {
    for (const w of link.writes.values()) {
      const { length } = values[w.index]!;
      if (link.state.equals(w.index, values[w.index]!, 0, length)) this.#end(w);
      else this.#waiting.add(w);
    }
  }

  /** lose ends the writes of a link that ended. */
  lose(link: WriteLink): void {
    for (const w of link.writes.values()) this.#end(w, "lost");
  }

  #end(w: Write, code?: WriteCode): void {
    this.#leave(w);
    this.#waiting.delete(w);
    w.link.writes.delete(w.index);
    w.end(code);
  }

  /** leave takes a write out of the datagram that had it. */
  #leave(w: Write): void {
    w.batch?.writes.delete(w);
    if (w.batch?.writes.size === 0) this.#batches.delete(w.batch.number);
    w.batch = undefined;
  }

  /** value takes a value of the edge. */
  value(link: WriteLink, index: number, p: Uint8Array, at: number, size: number, order: Order, now: number): void {
    if (older(order, link.orders[index] ?? unordered)) return;
    this.#generation = Math.max(this.#generation, order.generation);
    link.orders[index] = order;
    const w = link.writes.get(index);
    if (w) w.stash = copy(p, at, at + size);
    else if (link.state.receive(index, p, at, size, now)) this.changed(link.state, index);
  }

  /**
   * acknowledge handles an acknowledgement in a LinkUpdate. That of an edge from which another one took the session over does not
   * count, because values of the new edge may be older than the write. The new edge acknowledges the next repeat.
   */
  acknowledge(ack: Acknowledgement, order: Order, now: number): void {
    if (order.generation < this.#generation) return;
    this.#generation = order.generation;
    const batch = this.#batches.get(ack.number);
    if (!batch) return;
    this.#time(batch, now);
    for (const w of [...batch.writes]) {
      if (w.batch !== batch) continue; // a handler of a change has written it again
      const { link, index, stash } = w;
      const refusal = ack.refused.find((r) => r.link === link.id && r.index === index);
      this.#end(w, refusal && (codes[refusal.code] ?? "refused"));
      const overtaken = older(link.orders[index] ?? unordered, order);
      if (overtaken) link.orders[index] = order; // what comes late from before does not have the write
      if (!stash || (overtaken && !refusal)) continue;
      if (link.state.receive(index, stash, 0, stash.length, now)) this.changed(link.state, index);
    }
  }

  /** time learns from an acknowledgement. That of a number that was repeated may belong to any of its copies. */
  #time(batch: Batch, now: number): void {
    this.#backedOff = batch.repeated ? batch.pause : 0;
    if (!batch.repeated) this.#trip.sample(now - batch.first);
  }

  get #pause(): number {
    if (this.ordered) return pauseMost;
    const { mean, deviation } = this.#trip;
    const usual = mean === 0 ? pauseFirst : Math.max(pauseLeast, 1.5 * mean + 4 * deviation);
    return Math.min(pauseMost, Math.max(usual, this.#backedOff));
  }

  /** resume has everything sent again over another transport. */
  resume(ordered: boolean): void {
    this.ordered = ordered;
    for (const batch of this.#batches.values()) Object.assign(batch, { due: -Infinity, pause: this.#pause, repeated: true });
  }

  /** nextTimeout returns when flush has something to do. */
  nextTimeout(): number {
    let at = this.#waiting.size > 0 && this.mode !== "waiting" ? this.#sendAt : Infinity;
    for (const batch of this.#batches.values()) at = Math.min(at, batch.due);
    return at;
  }

  /** flush sends what waits, and repeats what is due, in as few datagrams as possible. */
  flush(now: number): void {
    this.#now = now;
    if (this.mode !== "waiting" && this.#waiting.size > 0 && now >= this.#sendAt) {
      this.#sendAt = now + this.interval;
      for (const w of this.#waiting) this.#send(w);
      this.#updates.flush();
      this.#waiting.clear();
    }
    for (const batch of this.#batches.values()) if (now >= batch.due) this.#repeat(batch);
  }

  #send(w: Write): void {
    this.#updates.add(w.link.id, w.index, w.link.state.encoded(w.index));
    w.batch = this.#batch;
    this.#batch?.writes.add(w);
    if (!this.#batch) this.#end(w); // nobody can know more
  }

  /** begin returns the number of a datagram: that of its first sending, or the next one. */
  #begin(): number {
    if (this.mode === "plain") return 0;
    if (this.#again) return this.#again.number;
    const pause = this.#pause;
    this.#batch = { number: this.#next++, first: this.#now, writes: new Set(), due: this.#now + pause, pause, repeated: false };
    this.#batches.set(this.#batch.number, this.#batch);
    return this.#batch.number;
  }

  #repeat(batch: Batch): void {
    this.#again = batch;
    for (const { link, index } of batch.writes) this.#updates.add(link.id, index, link.state.encoded(index));
    this.#updates.flush();
    this.#again = undefined;
    batch.repeated = true;
    if (batch.due > -Infinity) batch.pause = Math.min(pauseMost, 2 * batch.pause); // else it goes over another transport
    batch.due = this.#now + batch.pause;
  }
}

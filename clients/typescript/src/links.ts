import { copy } from "./bytes.js";
import { RoundTrip } from "./sendwindow.js";
import { describe, Layout, State, type Description } from "./state.js";
import type { ValueType } from "./value.js";
import { linkDown, linkState, linkUp, parseLinkState, readUpdate, UpdateWriter, type UpdateTarget } from "./wire.js";

/** Bounds of the states of an edge, which offers 4,096 by default, each with at most 8,192 values. */
const linksMax = 32_767;
const valuesMax = 8_192;

/** States that a client may make; the edge's limit. Their LinkIds count from 0, below all that an edge uses. */
export const ownMax = 64;
const ownIDs = 0x1000;

/**
 * LinkUpdate and LinkDown have no acknowledgement, so they are sent again at these times (ms). At 30 % loss
 * one in 400 does not arrive with any of the five.
 */
const repeatSteps = [0, 60, 180, 500, 1500];
const repeatsTake = repeatSteps.at(-1)!;

/**
 * LinkUp is sent again until the edge sends values, as all edges do within 1.5 s. It costs a datagram each, so
 * the links of an edge with many states share the budget, a few in each flush.
 */
const upSteps = [0, 250, 500, 1000, 2000];
const upsPerFlush = 8;

/** All values of own states are sent again after this time: the rest of what got lost. */
const scrubInterval = 10_000;

/** What the link table tells its owner. */
export interface LinkEvents {
  send(datagram: Uint8Array): void;
  /** answer sends the answer to an offer, which costs nothing at the edge. */
  answer(datagram: Uint8Array): void;
  /** ready says that the application set a value, which the next flush may send. */
  ready(): void;
  linked(state: State): void;
  changed(state: State, index: number): void;
  unlinked(state: State): void;
  /** command sends a command about the state of a link, whose LinkId `link` returns while it exists. */
  command(link: () => number | undefined, name: string, body: Uint8Array, signal?: AbortSignal): Promise<Uint8Array>;
}

/** A Repeat is a value that this client set, a LinkUp or a LinkDown, while it may not have arrived. */
interface Repeat {
  step: number;
  first: number; // when it was sent; Infinity before
  due: number; // NaN after the last time
  previous: Uint8Array | undefined; // the value that was overwritten
}

const newRepeat = (step: number, previous?: Uint8Array): Repeat => ({ step, first: Infinity, due: -Infinity, previous });

/**
 * arrived reports whether something was sent for the last time, and the edge was heard afterwards. Without that,
 * all its copies may have gone into a transport that was lost already.
 */
const arrived = (r: Repeat, heard: number): boolean => Number.isNaN(r.due) && heard > r.first + repeatsTake;

interface Link {
  readonly id: number;
  readonly state: State;
  up: boolean;
  readonly writes: Map<number, Repeat>;
}

function equal(a: Uint8Array, p: Uint8Array, at: number, size: number): boolean {
  return a.length === size && a.every((b, i) => b === p[at + i]);
}

/** A LinkTable holds the links of a connection, in both directions: they share the LinkIds. */
export class LinkTable implements UpdateTarget {
  /** Reads the link messages of the edge's states. */
  describe: (message: Uint8Array) => Description = describe;

  readonly #links = new Map<number, Link>();
  readonly #writing = new Set<Link>();
  readonly #ups = new Map<number, Repeat>(); // by LinkId: states of the edge that it may not know to be linked
  readonly #downs = new Map<number, Repeat>(); // by LinkId: own states that were taken down
  readonly #updates: UpdateWriter;
  #nextID = 0;
  #writeAt = Infinity; // when a repeat is due
  #flushAt = -Infinity; // no LinkUpdate before
  #scrubAt = Infinity;

  // Of the LinkUpdate under way:
  #now = 0;
  #trip = new RoundTrip();
  #link: Link | undefined;

  constructor(private readonly events: LinkEvents, datagramMax: number, private readonly interval: number) {
    this.#updates = new UpdateWriter(datagramMax, (datagram) => events.send(datagram));
  }

  /** receiveOffer answers a LinkState, which was acknowledged, with LinkUp or LinkDown. */
  receiveOffer(p: Uint8Array, now: number): void {
    const m = parseLinkState(p);
    if (!m) return;
    const known = this.#links.get(m.link);
    if (known) { // a repeat; under the id of an own offer either answer would hit that one
      if (!known.state.own) this.events.answer(linkUp(m.link));
      return;
    }
    // An offer without values is a question of the edge: LinkUp and LinkDown answer it alike.
    if (m.types.length === 0 || m.types.length > valuesMax || this.#links.size >= linksMax) {
      this.events.answer(linkDown(m.link));
      return;
    }
    const { key, names, fields } = this.describe(m.message);
    const layout = new Layout(m.types, names, fields);
    const state = new State({ key, message: m.message, layout, values: m.values, own: false, writable: !m.readOnly });
    const link: Link = { id: m.link, state, up: true, writes: new Map() };
    this.#links.set(m.link, link);
    this.#bind(link);
    this.events.answer(linkUp(m.link));
    this.#ups.set(m.link, { step: 1, first: now, due: now + upSteps[1]!, previous: undefined });
    this.#writeAt = Math.min(this.#writeAt, now + upSteps[1]!);
    this.events.linked(state);
  }

  /** offer gives an own state a LinkId and returns what builds its LinkState. */
  offer(state: State): (number: number) => Uint8Array {
    while (this.#links.has(this.#nextID)) this.#nextID++;
    if (this.#nextID >= ownIDs) throw new Error(`offer ${state.key}: the connection has no more LinkIds`);
    const link: Link = { id: this.#nextID++, state, up: false, writes: new Map() };
    this.#links.set(link.id, link);
    return (number) => {
      const values = state.layout.types.map((_, i) => state.encoded(i));
      return linkState({ number, link: link.id, readOnly: false, message: state.message, types: state.layout.types, values });
    };
  }

  receiveUp(id: number, now: number): void {
    const link = this.#links.get(id);
    if (!link && id < this.#nextID) this.#takeDown(id); // all its LinkDowns were lost
    if (!link || link.up) return;
    link.up = true;
    this.#bind(link);
    this.#scrubAt = Math.min(this.#scrubAt, now + scrubInterval);
    this.#rewrite(link, 0); // the edge repeats LinkUp until it has a LinkUpdate
    this.events.linked(link.state);
  }

  receiveDown(id: number): void {
    const link = this.#links.get(id);
    if (link) this.#remove(link, true); // an own state that is not up is refused
  }

  /** withdraw takes an own state down. */
  withdraw(state: State): void {
    for (const link of this.#links.values()) {
      if (link.state !== state) continue;
      this.#takeDown(link.id);
      this.#remove(link, link.up);
    }
  }

  /** clear ends all links. */
  clear(): void {
    for (const link of this.#links.values()) this.#remove(link, link.up);
  }

  #takeDown(id: number): void {
    this.#downs.set(id, newRepeat(0));
    this.#writeAt = -Infinity;
  }

  #remove(link: Link, tell: boolean): void {
    link.up = false;
    this.#links.delete(link.id);
    this.#ups.delete(link.id);
    this.#writing.delete(link);
    link.state.written = undefined;
    link.state.commanded = undefined;
    if (tell) this.events.unlinked(link.state);
  }

  #bind(link: Link): void {
    link.state.written = (index, previous) => {
      this.#write(link, index, 0, link.writes.get(index)?.previous ?? previous);
      this.events.ready();
    };
    link.state.commanded = (name, body, signal) => this.events.command(() => (link.up ? link.id : undefined), name, body, signal);
  }

  #write(link: Link, index: number, step: number, previous?: Uint8Array): void {
    link.writes.set(index, newRepeat(step, previous));
    this.#writing.add(link);
    this.#writeAt = -Infinity;
  }

  /** rewrite sends all values of an own state, as if they had just been set, or for the last time. */
  #rewrite(link: Link, step: number): void {
    for (let i = 0; i < link.state.length; i++) if (Number.isNaN(link.writes.get(i)?.due ?? NaN)) this.#write(link, i, step);
  }

  /** receiveUpdate applies a LinkUpdate, and reports whether all of it could be read. */
  receiveUpdate(p: Uint8Array, now: number, trip: RoundTrip): boolean {
    this.#now = now;
    this.#trip = trip;
    return readUpdate(p, this);
  }

  types(id: number): readonly ValueType[] | undefined {
    this.#link = this.#links.get(id);
    this.#ups.delete(id);
    return this.#link?.up ? this.#link.state.layout.types : undefined;
  }

  value(_id: number, index: number, p: Uint8Array, at: number, size: number): void {
    const link = this.#link!;
    if (!link.up || this.#crosses(link, index, p, at, size)) return;
    if (link.state.receive(index, p, at, size, this.#now)) this.events.changed(link.state, index);
  }

  /**
   * crosses reports whether a value crosses a write of this client on the way, so that the write is the later
   * one: it comes sooner than an answer could, or it is the value that the write has replaced, and comes as
   * late as an answer may. Any other value ends the repeats of the write: the edge has it, or others have
   * written since, whom a repeat would overwrite.
   */
  #crosses(link: Link, index: number, p: Uint8Array, at: number, size: number): boolean {
    const write = link.writes.get(index);
    if (!write) return false;
    const since = this.#now - write.first;
    if (since === -Infinity) write.previous = copy(p, at, at + size); // the write was not even sent
    if (since < this.#trip.mean) return true;
    if (since < this.#trip.longest && write.previous && equal(write.previous, p, at, size)) return true;
    link.writes.delete(index);
    return false;
  }

  /** nextTimeout returns when flush has something to do. */
  nextTimeout(): number {
    return Math.max(this.#flushAt, Math.min(this.#writeAt, this.#scrubAt));
  }

  /** resume sends again what may have got lost with a transport over which the edge was last heard at this time. */
  resume(heard: number): void {
    this.#writeAt = -Infinity;
    for (const { writes } of this.#writing) {
      for (const [index, write] of writes) {
        if (arrived(write, heard)) writes.delete(index);
        else writes.set(index, newRepeat(0, write.previous));
      }
    }
    for (const [id, down] of this.#downs) if (!arrived(down, heard)) this.#downs.set(id, newRepeat(0));
  }

  /** flush sends the values that are due in as few datagrams as possible. */
  flush(now: number, heard: number): void {
    if (now < this.nextTimeout()) return;
    if (now >= this.#scrubAt) this.#scrub(now);
    this.#flushAt = now + this.interval;
    this.#writeAt = Infinity;
    for (const link of this.#writing) {
      for (const [index, write] of link.writes) {
        if (this.#step(write, now, repeatSteps)) this.#updates.add(link.id, index, link.state.encoded(index));
        if (arrived(write, heard)) link.writes.delete(index);
      }
      if (link.writes.size === 0) this.#writing.delete(link);
    }
    this.#updates.flush();
    for (const [id, down] of this.#downs) {
      if (this.#step(down, now, repeatSteps)) this.events.send(linkDown(id));
      if (arrived(down, heard)) this.#downs.delete(id);
    }
    this.#flushUps(now);
  }

  #flushUps(now: number): void {
    let sent = 0;
    for (const [id, up] of this.#ups) {
      if (sent === upsPerFlush) {
        this.#writeAt = -Infinity;
        return;
      }
      if (this.#step(up, now, upSteps)) {
        this.events.send(linkUp(id));
        sent++;
      }
      if (Number.isNaN(up.due)) this.#ups.delete(id);
    }
  }

  /** step reports whether to send something, and notes when that is due again: NaN is never. */
  #step(r: Repeat, now: number, steps: readonly number[]): boolean {
    const send = now >= r.due;
    if (send) {
      if (r.first === Infinity) r.first = now;
      r.due = r.first + (steps[++r.step] ?? NaN);
    }
    if (r.due < this.#writeAt) this.#writeAt = r.due;
    return send;
  }

  #scrub(now: number): void {
    this.#scrubAt = Infinity;
    for (const link of this.#links.values()) {
      if (!link.up || !link.state.own) continue;
      this.#rewrite(link, repeatSteps.length - 1);
      this.#scrubAt = now + scrubInterval;
    }
  }
}

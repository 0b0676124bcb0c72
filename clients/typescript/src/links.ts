import { copy } from "./bytes.js";
import { describe, Layout, State, type Description } from "./state.js";
import type { ValueType } from "./value.js";
import { linkDown, linksEnd, linkState, linkUp, parseLinkState, parseTrailer, readUpdate, unordered, type Order, type UpdateTarget } from "./wire.js";
import { Writes, type WriteLink } from "./writes.js";

/** Bounds of the states of an edge, which offers 4,096 by default, each with at most 8,192 values. */
const linksMax = 32_767;
const valuesMax = 8_192;

/** States that a client may make; the edge's limit. Their LinkIds count from 0, below all that an edge uses. */
export const ownMax = 64;
const ownIDs = 0x1000;

/**
 * LinkDown has no acknowledgement, so it is sent again at these times (ms). At 30 % loss one in 400 does not arrive with
 * any of the five.
 */
const repeatSteps = [0, 60, 180, 500, 1500];
const repeatsTake = repeatSteps.at(-1)!;

/**
 * LinkUp is sent again until the edge sends values, as all edges do within 1.5 s. It costs a datagram each, so
 * the links of an edge with many states share the budget, a few in each flush.
 */
const upSteps = [0, 250, 500, 1000, 2000];
const upsPerFlush = 8;

/** What the link table tells its owner. */
export interface LinkEvents {
  send(datagram: Uint8Array): void;
  /** answer sends the answer to an offer, which costs nothing at the edge. */
  answer(datagram: Uint8Array): void;
  /** ready says that the application set a value, which the next flush may send. */
  ready(): void;
  /** granted says that the edge knows writes with numbers, as it shows by what it sends. */
  granted(): void;
  linked(state: State): void;
  changed(state: State, index: number): void;
  unlinked(state: State): void;
  /** command sends a command about the state of a link, whose LinkId `link` returns while it exists. */
  command(link: () => number | undefined, name: string, body: Uint8Array, signal?: AbortSignal): Promise<Uint8Array>;
}

/** A Repeat is a LinkUp or a LinkDown, while it may not have arrived. */
interface Repeat {
  step: number;
  first: number; // when it was sent; Infinity before
  due: number; // NaN after the last time
}

const newRepeat = (): Repeat => ({ step: 0, first: Infinity, due: -Infinity });

/**
 * arrived reports whether something was sent for the last time, and the edge was heard afterwards. Without that,
 * all its copies may have gone into a transport that was lost already.
 */
const arrived = (r: Repeat, heard: number): boolean => Number.isNaN(r.due) && heard > r.first + repeatsTake;

interface Link extends WriteLink {
  up: boolean;
  offered: readonly Uint8Array[]; // the values of an own state in its offer
}

const newLink = (id: number, state: State, up: boolean): Link => ({ id, state, up, writes: new Map(), orders: [], offered: [] });

/** A LinkTable holds the links of a connection, in both directions: they share the LinkIds. */
export class LinkTable implements UpdateTarget {
  /** Reads the link messages of the edge's states. */
  describe: (message: Uint8Array) => Description = describe;

  readonly writes: Writes;
  readonly #links = new Map<number, Link>();
  readonly #ups = new Map<number, Repeat>(); // by LinkId: states of the edge that it may not know to be linked
  readonly #downs = new Map<number, Repeat>(); // by LinkId: own states that were taken down
  #trailers = true; // LinkUpdates of the edge may have one
  #nextID = 0;
  #repeatAt = Infinity; // when a LinkUp or LinkDown is due
  #flushAt = -Infinity; // none before

  // Of the LinkUpdate under way:
  #now = 0;
  #order: Order = unordered;
  #link: Link | undefined;

  constructor(private readonly events: LinkEvents, datagramMax: number, private readonly interval: number) {
    this.writes = new Writes(datagramMax, interval, (datagram) => events.send(datagram), (state, index) => events.changed(state, index));
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
    const link = newLink(m.link, state, true);
    this.#links.set(m.link, link);
    this.#bind(link);
    state.linked = true;
    this.events.answer(linkUp(m.link));
    this.#ups.set(m.link, { step: 1, first: now, due: now + upSteps[1]! });
    this.#repeatAt = Math.min(this.#repeatAt, now + upSteps[1]!);
    this.events.linked(state);
  }

  /** offer gives an own state a LinkId and returns what builds its LinkState. */
  offer(state: State): (number: number) => Uint8Array {
    while (this.#links.has(this.#nextID)) this.#nextID++;
    if (this.#nextID >= ownIDs) throw new Error(`offer ${state.key}: the connection has no more LinkIds`);
    const link = newLink(this.#nextID++, state, false);
    this.#links.set(link.id, link);
    this.#bind(link);
    return (number) => {
      const values = (link.offered = state.layout.types.map((_, i) => copy(state.encoded(i))));
      return linkState({ number, link: link.id, readOnly: false, message: state.message, types: state.layout.types, values });
    };
  }

  receiveUp(id: number): void {
    const link = this.#links.get(id);
    if (!link && id < this.#nextID) this.#takeDown(id); // all its LinkDowns were lost
    if (!link || link.up) return;
    link.up = link.state.linked = true;
    this.writes.offered(link, link.offered);
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
    this.#downs.set(id, newRepeat());
    this.#repeatAt = -Infinity;
  }

  #remove(link: Link, tell: boolean): void {
    link.up = link.state.linked = false;
    this.#links.delete(link.id);
    this.#ups.delete(link.id);
    link.state.connection = undefined;
    this.writes.lose(link);
    if (tell) this.events.unlinked(link.state);
  }

  #bind(link: Link): void {
    link.state.connection = {
      write: (index) => {
        const done = this.writes.write(link, index);
        this.events.ready();
        return done;
      },
      pending: (index) => link.writes.get(index)?.done,
      command: (name, body, signal) => this.events.command(() => (link.up ? link.id : undefined), name, body, signal),
    };
  }

  /** receiveUpdate applies a LinkUpdate, and reports whether all of it could be read. */
  receiveUpdate(p: Uint8Array, now: number): boolean {
    this.#now = now;
    this.#order = unordered;
    if (this.#trailers && p.length > 2) this.#receiveTrailer(p);
    return readUpdate(p, this);
  }

  /**
   * receiveTrailer handles what ends a LinkUpdate of an edge that grants writes: its order, and acknowledgements, which come
   * before its values. Where a link cannot be read, so that nobody knows where the links end, a trailer counts only if
   * the edge is known to send them: libraries announce more links than follow.
   */
  #receiveTrailer(p: Uint8Array): void {
    const links = linksEnd(p, this);
    if (links === p.length || (links < 0 && this.writes.mode !== "numbered")) return;
    const trailer = parseTrailer(p, links);
    if (!trailer) return;
    this.#order = trailer.order;
    if (this.writes.mode !== "numbered") this.events.granted(); // the answer to the hello may wait behind many offers
    for (const ack of trailer.acks) this.writes.acknowledge(ack, trailer.order, this.#now);
  }

  /** granted has writes go with numbers from now on. */
  granted(): void {
    this.writes.mode = "numbered";
    this.events.ready();
  }

  /** plain has writes go once, because the server knows no numbers. What is behind its values means nothing. */
  plain(): void {
    this.writes.mode = "plain";
    this.#trailers = false;
    this.events.ready();
  }

  types(id: number): readonly ValueType[] | undefined {
    this.#link = this.#links.get(id);
    this.#ups.delete(id);
    return this.#link?.up ? this.#link.state.layout.types : undefined;
  }

  value(_id: number, index: number, p: Uint8Array, at: number, size: number): void {
    if (this.#link!.up) this.writes.value(this.#link!, index, p, at, size, this.#order, this.#now);
  }

  /** nextTimeout returns when flush has something to do. */
  nextTimeout(): number {
    return Math.min(this.writes.nextTimeout(), Math.max(this.#flushAt, this.#repeatAt));
  }

  /** resume sends again what may have got lost with a transport over which the edge was last heard at this time. */
  resume(heard: number, ordered: boolean): void {
    this.#repeatAt = -Infinity;
    this.writes.resume(ordered);
    for (const [id, down] of this.#downs) if (!arrived(down, heard)) this.#downs.set(id, newRepeat());
  }

  /** flush sends what is due. */
  flush(now: number, heard: number): void {
    this.writes.flush(now);
    if (now < Math.max(this.#flushAt, this.#repeatAt)) return;
    this.#flushAt = now + this.interval;
    this.#repeatAt = Infinity;
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
        this.#repeatAt = -Infinity;
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
    if (r.due < this.#repeatAt) this.#repeatAt = r.due;
    return send;
  }
}

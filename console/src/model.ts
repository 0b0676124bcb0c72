// What the page knows of a space: the states of the frames that the server sends, and when they changed.

import { family, hue } from "./format.js";

/** A Value is a value of a state, as JSON has it. null is a null, or not a number. */
export type Value = number | string | null | (number | null)[] | { [field: string]: unknown };

export interface About {
  key: string;
  names: string[];
  types: string[];
  access: string;
  writers?: string[];
  audience: string;
  groups?: string[];
  clients?: string[];
  priority: number;
  levels: number;
  interest?: string;
  message: string;
}

/** An Interest says from how far states are seen, and how well. */
export interface Interest {
  at: string; // the value with the place: its name or index
  axes?: string; // all that the value has without it
  bands: { within: number; rate?: number; precision?: number }[];
}

/** An Eye is a point from which a client sees: where a state is, or a fixed one. */
export interface Eye {
  key?: string;
  value?: string;
  at?: number[];
}

export interface GameEvent {
  type: string;
  ts?: string;
  client?: string;
  key?: string;
  [field: string]: unknown;
}

/** A Frame is a message of the server: what changed since the one before. */
export interface Frame {
  v: number;
  space: string;
  epoch: number;
  seq: number;
  complete: boolean;
  waiting?: string;
  gone?: number[];
  groups?: { [client: string]: string[] | null };
  interests?: { [name: string]: Interest | null };
  eyes?: { [client: string]: Eye[] | null };
  events?: GameEvent[];
  missed?: number;
  states: { n: number; about: About; values: Value[] }[];
  changed: [number, ...(number | Value)[]][];
}

/** For so long in ms the rate of changes remembers. */
const rateMemory = 3_000;
const eventsMax = 2_000;
const trailMax = 24;
/** Trails of more states are only noise. */
export const trailsBelow = 3_000;

/** A Spot is a point of the map, and when a state came there. */
export interface Spot {
  x: number;
  y: number;
  at: number;
}

const nowhere: Spot = { x: 0, y: 0, at: -Infinity };

/** A Row is a state. */
export class Row {
  about: About;
  values: Value[];
  changedAt: number;
  hue = 0;
  placeAt = -1; // the index of the value that is its place
  /** Where the state is and was before, and when it came there, if it is placed. */
  placed = false;
  now: Spot = nowhere;
  before: Spot = nowhere;
  /** Where it was before that, newest last; empty in a space with many states. */
  trail: Spot[] = [];
  #rate = 0;
  #rateAt: number;

  constructor(readonly n: number, about: About, values: Value[], now: number) {
    this.about = about;
    this.values = values;
    this.changedAt = this.#rateAt = now;
  }

  get key(): string {
    return this.about.key;
  }

  /** Changes in a second, as seen by this page, to which a change between two frames is one. */
  rate(now: number): number {
    return this.#rate * Math.exp((this.#rateAt - now) / rateMemory) * (1_000 / rateMemory);
  }

  touch(now: number): void {
    this.#rate = this.#rate * Math.exp((this.#rateAt - now) / rateMemory) + 1;
    this.#rateAt = this.changedAt = now;
  }

  /** move says where the state is on the map, and keeps a trail if that is to be seen. */
  move(x: number, y: number, at: number, trail: boolean): void {
    if (this.placed && this.now.x === x && this.now.y === y) return;
    if (trail && this.placed) {
      this.trail.push(this.now);
      if (this.trail.length > trailMax) this.trail.shift();
    } else if (this.trail.length) this.trail = [];
    this.before = this.placed ? this.now : nowhere;
    this.now = { x, y, at };
    this.placed = true;
  }

  lose(): void {
    this.placed = false;
    this.trail = [];
  }

  /** The bytes of its values, about. */
  get size(): number {
    let n = 0;
    this.about.types.forEach((t, i) => (n += sizeOf(t, this.values[i] ?? null)));
    return n;
  }
}

/** sizeOf returns how many bytes an encoded value has. */
export function sizeOf(type: string, value: Value): number {
  if (type === "string") return 2 + (typeof value === "string" ? value.length : 0);
  if (type === "data") return 2 + (typeof value === "string" ? (value.length * 3) / 4 : 0);
  const [, form, count, bits] = /^([a-z]+?)(\d?)(?:[a-z]*?)(\d+)$/.exec(type) ?? [];
  const components = form === "quaternion" ? 4 : Number(count || 1);
  return (components * Number(bits ?? 8)) / 8;
}

/** A Place says which value of states is where they are, and which components lie along the axes. */
export interface Place {
  value: string; // its name; "" is the first value that may be one
  axes: [number, number];
}

const mayBePlace = /^(vector|point)[23]/;
const placesMax = 20; // to choose from
const placeNames = ["pos", "position", "at", "place", "location"];
/** Values with these words in their names have two or three numbers, too, and are no places. */
const noPlace = /colou?r|tint|scale|size|vel|speed|dir|normal|heading|rot|extent/i;

/** placeOf returns the index of the value that says where a state is; -1 if there is none. */
export function placeOf(about: About, name: string): number {
  if (name !== "") return about.names.indexOf(name);
  const may = (i: number) => mayBePlace.test(about.types[i] ?? "");
  for (const known of placeNames) {
    const i = about.names.findIndex((n) => n.toLowerCase() === known);
    if (i >= 0 && may(i)) return i;
  }
  return about.types.findIndex((_, i) => may(i) && !noPlace.test(about.names[i] ?? ""));
}

/** A Model has all states of a space. */
export class Model {
  readonly rows = new Map<number, Row>();
  readonly byKey = new Map<string, Row>();
  readonly groups = new Map<string, string[]>();
  readonly interests = new Map<string, Interest>();
  /** The eyes of clients that were given some. */
  readonly eyes = new Map<string, Eye[]>();
  /** The eyes of all others. */
  everyone: Eye[] = [];
  /** The names of values that may be places. */
  readonly places = new Set<string>();
  events: GameEvent[] = [];
  missed = 0;
  epoch = 0;
  seq = 0;
  complete = false;
  waiting = "";
  changes = 0; // of values, since the page was opened
  touchedAt = 0; // when something changed that the map may show
  place: Place = { value: "", axes: [0, 2] };

  apply(f: Frame, now: number): void {
    Object.assign(this, { epoch: f.epoch, seq: f.seq, complete: f.complete, waiting: f.waiting ?? "" });
    if (f.gone || f.groups || f.interests || f.eyes || f.states.length || f.changed.length) this.touchedAt = now;
    for (const n of f.gone ?? []) this.#remove(n);
    for (const s of f.states) this.#put(s.n, s.about, s.values, now);
    for (const [n, ...list] of f.changed) {
      const row = this.rows.get(n);
      if (!row) continue;
      for (let i = 0; i + 1 < list.length; i += 2) row.values[list[i] as number] = list[i + 1] as Value;
      this.changes += list.length / 2;
      row.touch(now);
      this.#move(row, now);
    }
    for (const [client, groups] of Object.entries(f.groups ?? {})) {
      if (groups?.length) this.groups.set(client, groups);
      else this.groups.delete(client);
    }
    for (const [name, interest] of Object.entries(f.interests ?? {})) {
      if (interest) this.interests.set(name, interest);
      else this.interests.delete(name);
    }
    for (const [client, eyes] of Object.entries(f.eyes ?? {})) {
      if (client === "") this.everyone = eyes ?? [];
      else if (eyes) this.eyes.set(client, eyes);
      else this.eyes.delete(client);
    }
    this.missed += f.missed ?? 0;
    if (f.events?.length) this.events = [...this.events, ...f.events].slice(-eventsMax);
  }

  /** setPlace says anew where states are. */
  setPlace(place: Place, now: number): void {
    this.place = place;
    this.touchedAt = now;
    for (const row of this.rows.values()) {
      row.lose();
      row.placeAt = placeOf(row.about, place.value);
      this.#move(row, now);
    }
  }

  #put(n: number, about: About, values: Value[], now: number): void {
    const known = this.rows.get(n);
    if (known) {
      if (this.byKey.get(known.key) === known) this.byKey.delete(known.key);
      known.about = about;
      known.values = values;
      known.touch(now);
    }
    const row = known ?? new Row(n, about, values, now);
    this.rows.set(n, row);
    this.byKey.set(about.key, row);
    row.hue = hue(family(about.key));
    row.placeAt = placeOf(about, this.place.value);
    about.types.forEach((t, i) => mayBePlace.test(t) && about.names[i] && this.places.size < placesMax && this.places.add(about.names[i]!));
    this.#move(row, now);
  }

  #remove(n: number): void {
    const row = this.rows.get(n);
    this.rows.delete(n);
    if (row && this.byKey.get(row.key) === row) this.byKey.delete(row.key);
  }

  #move(row: Row, now: number): void {
    const v = row.values[row.placeAt];
    if (!Array.isArray(v)) return row.lose();
    const x = v[this.place.axes[0]];
    const y = v[Math.min(this.place.axes[1], v.length - 1)];
    if (typeof x !== "number" || typeof y !== "number") return row.lose();
    row.move(x, y, now, this.rows.size <= trailsBelow);
  }
}

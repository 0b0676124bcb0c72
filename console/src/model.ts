// What the page knows of a space: the states of the frames that the server sends, and when they changed.

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
  message: string;
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
  events?: GameEvent[];
  missed?: number;
  states: { n: number; about: About; values: Value[] }[];
  changed: [number, ...(number | Value)[]][];
}

/** For so long in ms the rate of changes remembers. */
const rateMemory = 3_000;
const eventsMax = 2_000;
export const trailMax = 24;

/** A Row is a state. */
export class Row {
  about: About;
  values: Value[];
  changedAt: number;
  #rate = 0;
  #rateAt: number;
  /** Where the state was, in world coordinates: x, y, and when it came there. Newest last. */
  trail: { x: number; y: number; at: number }[] = [];

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

const placeNames = ["pos", "position", "at", "place", "location"];
/** Values with these words in their names have two or three numbers, too, and are no places. */
const noPlace = /colou?r|tint|scale|size|vel|speed|dir|normal|heading|rot|extent/i;

/** placeOf returns the index of the value that says where a state is; -1 if there is none. */
export function placeOf(about: About, name: string): number {
  if (name !== "") return about.names.indexOf(name);
  const may = (i: number) => /^(vector|point)[23]/.test(about.types[i] ?? "");
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
  events: GameEvent[] = [];
  missed = 0;
  epoch = 0;
  seq = 0;
  complete = false;
  waiting = "";
  changes = 0; // of values, since the page was opened
  place: Place = { value: "", axes: [0, 2] };

  apply(f: Frame, now: number): void {
    Object.assign(this, { epoch: f.epoch, seq: f.seq, complete: f.complete, waiting: f.waiting ?? "" });
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
    this.missed += f.missed ?? 0;
    if (f.events?.length) this.events = [...this.events, ...f.events].slice(-eventsMax);
  }

  /** setPlace says anew where states are. */
  setPlace(place: Place, now: number): void {
    this.place = place;
    for (const row of this.rows.values()) {
      row.trail = [];
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
    this.#move(row, now);
  }

  #remove(n: number): void {
    const row = this.rows.get(n);
    this.rows.delete(n);
    if (row && this.byKey.get(row.key) === row) this.byKey.delete(row.key);
  }

  #move(row: Row, now: number): void {
    const v = row.values[placeOf(row.about, this.place.value)];
    if (!Array.isArray(v)) return void (row.trail = []);
    const x = v[this.place.axes[0]];
    const y = v[Math.min(this.place.axes[1], v.length - 1)];
    if (typeof x !== "number" || typeof y !== "number") return void (row.trail = []);
    const last = row.trail.at(-1);
    if (last && last.x === x && last.y === y) return;
    row.trail.push({ x, y, at: now });
    if (row.trail.length > trailMax) row.trail.shift();
  }
}

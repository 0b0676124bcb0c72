import { copy } from "./bytes.js";
import { CommandError } from "./command.js";
import { Past } from "./past.js";
import { decodeFixed, encodedSize, encodeValue, newComponents, readComponent, valueTypes, type Components, type Settable, type Value, type ValueType } from "./value.js";
import { failed } from "./writes.js";

/** A Field is a named component of a data value. */
export interface Field {
  readonly name: string;
  readonly type: ValueType;
}

/** Fields are the components of data values, by the index of the value. */
export type Fields = ReadonlyMap<number, readonly Field[]>;

/** A Layout is the ordered types of a state's values, and their names and fields where they are known. */
export class Layout {
  /** Where the fixed-size values lie in a state's buffer. */
  readonly offsets: readonly number[];
  readonly size: number;
  readonly #indexes = new Map<string, number>();

  constructor(readonly types: readonly ValueType[], readonly names: readonly string[] = [], readonly fields: Fields = new Map()) {
    let size = 0;
    this.offsets = types.map((type) => {
      size += type.size;
      return size - type.size;
    });
    this.size = size;
    names.forEach((name, i) => this.#indexes.set(name, i));
  }

  /** index returns the index of a value that the state has. */
  index(value: number | string): number {
    const i = typeof value === "string" ? this.#indexes.get(value) : value;
    if (i === undefined || !(i in this.types)) throw new RangeError(`the state has no value ${JSON.stringify(value)}`);
    return i;
  }
}

/** What a State is made of. */
export interface StateConfig {
  readonly key: string;
  readonly message: Uint8Array;
  readonly layout: Layout;
  /** The encoded values. They are copied. */
  readonly values: readonly Uint8Array[];
  readonly own: boolean;
  readonly writable: boolean;
}

/** A StateConnection is what a connection does for a state. @internal */
export interface StateConnection {
  /** write notes that the application set a value. The promise ends when the edge has it, or refuses it. */
  write(index: number): Promise<void>;
  /** pending returns the promise of a value that is on its way. */
  pending(index: number): Promise<void> | undefined;
  command(name: string, body: Uint8Array, signal?: AbortSignal): Promise<Uint8Array>;
}

const utf8 = new TextDecoder();
const done = Promise.resolve();

/**
 * A State is a list of typed values that the edge and this client keep equal. Its values stay as they
 * came, and are decoded when they are read for the first time after a change. So reading a value that
 * did not change makes no garbage: points, vectors and quaternions are always the same array, which
 * the next `get` after a change overwrites.
 */
export class State {
  /** The name of the state: its link message as text, or what the description in it says. */
  readonly key: string;
  /** The link message, which tells the application what the state is. */
  readonly message: Uint8Array;
  readonly layout: Layout;
  /** Whether this client made the state. */
  readonly own: boolean;
  /** Whether this client may set values. */
  readonly writable: boolean;

  readonly #fixed: Uint8Array;
  readonly #view: DataView;
  readonly #variable: Uint8Array[] = []; // by index: the encoded string or data
  readonly #decoded: Value[] = [];
  readonly #fresh: Uint8Array; // by index: 1 if decoded is the newest value
  #past?: Past;

  /** Whether the state has a link, without which its values do not change. */
  linked = false;

  /** The connection that has the state; undefined if none has. @internal */
  connection?: StateConnection | undefined;

  constructor(config: StateConfig) {
    this.key = config.key;
    this.message = copy(config.message);
    this.layout = config.layout;
    this.own = config.own;
    this.writable = config.writable;
    this.#fixed = new Uint8Array(this.layout.size);
    this.#view = new DataView(this.#fixed.buffer);
    this.#fresh = new Uint8Array(this.layout.types.length);
    config.values.forEach((value, i) => this.#store(i, value, 0, value.length));
  }

  /** The number of values. */
  get length(): number {
    return this.layout.types.length;
  }

  /** get returns the newest value, by index or name. An array that it returns belongs to the state. */
  get(value: number | string): Value {
    const i = this.layout.index(value);
    if (this.#fresh[i] === 0) this.#decode(i);
    return this.#decoded[i]!;
  }

  /**
   * read writes the components of a number, point, vector or quaternion to `out`, from `offset` on, and
   * returns how many there are. It never allocates.
   */
  read(value: number | string, out: { [i: number]: number }, offset = 0): number {
    const v = this.get(value);
    if (typeof v === "number") out[offset] = v;
    if (typeof v !== "object") return 1;
    for (let i = 0; i < v.length; i++) out[offset + i] = Number(v[i]!);
    return v.length;
  }

  /**
   * set changes a value, and has the connection tell the edge. The promise ends when the value is that of the state
   * for all others, or with a WriteError, which is no unhandled rejection where nobody looks. If the value is set again
   * meanwhile, it ends with that. A state of this client that has no connection is offered with the value later, and the
   * promise rejects.
   */
  set(value: number | string, to: Settable): Promise<void> {
    const i = this.layout.index(value);
    if (!this.writable) throw new Error(`set ${this.key}: the state is read-only`);
    if (!this.own && !this.linked) throw new Error(`set ${this.key}: the state has no link`);
    const encoded = encodeValue(this.layout.types[i]!, to);
    if (this.equals(i, encoded, 0, encoded.length)) return this.connection?.pending(i) ?? done;
    this.#store(i, encoded, 0, encoded.length);
    return this.connection?.write(i) ?? failed("lost");
  }

  /**
   * fields returns the components of a data value by name, in an object of its own. It returns undefined if
   * the link message tells none, or the data are of another size.
   */
  fields(value: number | string): Record<string, Value> | undefined {
    const i = this.layout.index(value);
    const list = this.layout.fields.get(i);
    const data = this.#variable[i];
    if (!list || !data || data.length - 2 !== sizeOf(list)) return undefined;
    const view = new DataView(data.buffer, data.byteOffset + 2, data.length - 2);
    const out = Object.create(null) as Record<string, Value>; // a field may have any name
    let at = 0;
    for (const { name, type } of list) {
      out[name] = decodeFixed(type, view, at);
      at += type.size;
    }
    return out;
  }

  /** setFields sets a data value to components, of which all must be given. Its promise is that of `set`. */
  setFields(value: number | string, to: Readonly<Record<string, Settable>>): Promise<void> {
    const list = this.layout.fields.get(this.layout.index(value));
    if (!list) throw new TypeError(`set ${this.key}: the link message tells no fields of ${JSON.stringify(value)}`);
    const unknown = Object.keys(to).find((name) => !list.some((f) => f.name === name));
    if (unknown !== undefined) throw new RangeError(`set ${this.key}: no field ${JSON.stringify(unknown)}`);
    const data = new Uint8Array(sizeOf(list));
    let at = 0;
    for (const { name, type } of list) {
      if (!Object.hasOwn(to, name)) throw new RangeError(`set ${this.key}: field ${JSON.stringify(name)} is missing`);
      data.set(encodeValue(type, to[name]!), at);
      at += type.size;
    }
    return this.set(value, data);
  }

  /**
   * command asks the game server to do something with the state, and gives its answer. The client must have
   * the right to set values of it. It rejects with a CommandError, or with the reason of the signal, after
   * which the command may be executed all the same. Beyond 16 commands without an answer it waits.
   */
  async command(name: string, body: Uint8Array | string = "", options: { signal?: AbortSignal } = {}): Promise<Uint8Array> {
    if (!this.connection || !this.linked) throw new CommandError("unknown_state", "the state has no link");
    return this.connection.command(name, typeof body === "string" ? new TextEncoder().encode(body) : body, options.signal);
  }

  /**
   * at returns the state as it was a moment before `t`, a time of `performance.now()`. The moment is
   * long enough that the values of then and of now can be known: floats, vectors and quaternions move
   * evenly from one to the next. All other values are the newest ones. The result is valid until the
   * next call.
   */
  at(t: number): Past {
    this.#past ??= new Past(this);
    this.#past.moveTo(t);
    return this.#past;
  }

  /** encoded returns the wire bytes of a value; they are not a copy. @internal */
  encoded(i: number): Uint8Array {
    const { size } = this.layout.types[i]!;
    const offset = this.layout.offsets[i]!;
    return size === 0 ? this.#variable[i]! : this.#fixed.subarray(offset, offset + size);
  }

  /** equals reports whether a value has the encoding that lies in p. @internal */
  equals(i: number, p: Uint8Array, at: number, size: number): boolean {
    const variable = this.layout.types[i]!.size === 0;
    const have = variable ? this.#variable[i]! : this.#fixed;
    const offset = variable ? 0 : this.layout.offsets[i]!;
    if (variable && have.length !== size) return false;
    for (let k = 0; k < size; k++) if (have[offset + k] !== p[at + k]) return false;
    return true;
  }

  /** receive takes a value from a datagram of the time `now`, and reports whether it is another one. @internal */
  receive(i: number, p: Uint8Array, at: number, size: number, now: number): boolean {
    if (this.equals(i, p, at, size)) return false;
    this.#past?.before(i, now);
    this.#store(i, p, at, size);
    this.#past?.after(i);
    return true;
  }

  #store(i: number, p: Uint8Array, at: number, size: number): void {
    const type = this.layout.types[i]!;
    if (encodedSize(type, p, at, at + size) !== size) throw new RangeError(`value ${i} is no ${type.name}`);
    this.#fresh[i] = 0;
    if (type.size === 0) {
      this.#variable[i] = copy(p, at, at + size);
      return;
    }
    const offset = this.layout.offsets[i]!;
    for (let k = 0; k < size; k++) this.#fixed[offset + k] = p[at + k]!;
  }

  #decode(i: number): void {
    this.#fresh[i] = 1;
    const type = this.layout.types[i]!;
    if (type.size === 0) {
      const bytes = this.#variable[i]!.subarray(2);
      this.#decoded[i] = type.kind === "string" ? utf8.decode(bytes) : bytes;
      return;
    }
    const offset = this.layout.offsets[i]!;
    if (type.components === 1) {
      this.#decoded[i] = readComponent(type, this.#view, offset);
      return;
    }
    const out = (this.#decoded[i] ??= newComponents(type)) as Components;
    for (let c = 0; c < type.components; c++) out[c] = readComponent(type, this.#view, offset + c * type.width);
  }
}

/** A Description is what a link message tells of its state. */
export interface Description {
  readonly key: string;
  readonly names?: readonly string[];
  readonly fields?: Fields;
}

const sizeOf = (fields: readonly Field[]): number => fields.reduce((size, f) => size + f.type.size, 0);

/** fieldsMax is the most components of a value. */
const fieldsMax = 64;

/** fieldsOf reads the fields of a link message, and leaves out those that no data can have. */
function fieldsOf(told: unknown): Fields {
  const all = new Map<number, readonly Field[]>();
  if (typeof told !== "object" || told === null || Array.isArray(told)) return all;
  for (const [index, list] of Object.entries(told)) {
    const fields = /^\d{1,5}$/.test(index) && Array.isArray(list) && list.length <= fieldsMax ? list.map(fieldOf) : [];
    const names = new Set(fields.map((f) => f?.name));
    if (fields.length > 0 && names.size === fields.length && !names.has(undefined)) all.set(Number(index), fields as Field[]);
  }
  return all;
}

function fieldOf(pair: unknown): Field | undefined {
  if (!Array.isArray(pair) || pair.length !== 2 || typeof pair[0] !== "string" || pair[0] === "") return undefined;
  const type = valueTypes.find((t) => t.name === pair[1]);
  return type && type.size > 0 ? { name: pair[0], type } : undefined;
}

/**
 * describe reads a link message: plain text is the key of the state. An object in JSON with `"v":1`, a
 * `key` and the `names` of the values also tells those, and the `fields` of data.
 */
export function describe(message: Uint8Array): Description {
  const text = utf8.decode(message);
  if (text.startsWith("{")) {
    try {
      const d = JSON.parse(text) as { v?: unknown; key?: unknown; names?: unknown; fields?: unknown };
      const names = Array.isArray(d.names) && d.names.every((name) => typeof name === "string") ? (d.names as string[]) : [];
      const fields = fieldsOf(d.fields);
      if (d.v === 1 && typeof d.key === "string") return fields.size > 0 ? { key: d.key, names, fields } : { key: d.key, names };
    } catch {
      // It is a text that begins with a brace.
    }
  }
  return { key: text };
}

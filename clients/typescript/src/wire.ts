/**
 * The datagrams of DNP in the dialect of deployed clients (profile denetwork). A datagram is one
 * command: a command byte and its fields, little endian. A parser returns undefined for a datagram
 * that ends inside a field, and ignores what follows a complete command.
 */
import { concat } from "./bytes.js";
import { encodedSize, valueTypes, type ValueType } from "./value.js";

export const Command = {
  connectionRequest: 0,
  connectionAck: 1,
  connectionClose: 2,
  message: 3,
  reliableMessage: 4,
  linkState: 5,
  reliableAck: 6,
  linkUp: 7,
  linkDown: 8,
  linkUpdate: 9,
  reliableMessageLong: 10,
} as const;

/** The results of a ConnectionAck. Any other one means rejected. */
export const Accepted = 0;
export const NoCommonProtocol = 2;

/** The codes of a ReliableAck. */
export const AckSuccess = 0;

/** The flags of a part of a long message. */
export const PartFirst = 1;
export const PartLast = 2;

/**
 * Reliable commands of one direction are numbered modulo 65535: 65534 is followed by 0, and 65535 does
 * not exist. The code counts them without end, and `seq` is the number on the wire.
 */
export const modulus = 65_535;

export const seq = (n: number): number => n % modulus;

/** unwrap returns the count nearest to `near` that a number stands for, or -1 if there is none. */
export function unwrap(number: number, near: number): number {
  if (number >= modulus) return -1;
  const forward = (number + modulus - (near % modulus)) % modulus;
  if (forward <= modulus / 2) return near + forward;
  return Math.max(-1, near + forward - modulus);
}

export const u16 = (p: Uint8Array, at: number): number => p[at]! | (p[at + 1]! << 8);

function putU16(p: Uint8Array, at: number, v: number): void {
  p[at] = v;
  p[at + 1] = v >> 8;
}

/** command returns a datagram: the command byte, a u16 field, single bytes, and `data`. */
const command = (code: number, field: number, bytes: readonly number[], data: Uint8Array = new Uint8Array()): Uint8Array =>
  concat([Uint8Array.of(code, field, field >> 8, ...bytes), data]);

/** The request that every client sends: one protocol, number 0. */
export const connectionRequest = (): Uint8Array => Uint8Array.of(Command.connectionRequest, 1, 0, 0, 0);

export const connectionAck = (result: number): Uint8Array =>
  result === Accepted ? Uint8Array.of(Command.connectionAck, result, 0, 0) : Uint8Array.of(Command.connectionAck, result);

export const connectionClose = (): Uint8Array => Uint8Array.of(Command.connectionClose);

/** A ConnectionClose with two bytes that receivers ignore, by which an edge sees that its answer is awaited. */
export const connectionLeave = (): Uint8Array => Uint8Array.of(Command.connectionClose, 0, 0);

/** Whether a datagram says that the edge knows that the client leaves: a LinkUpdate without links, or a ConnectionClose. */
export const answersLeave = (p: Uint8Array): boolean =>
  p[0] === Command.connectionClose || (p.length === 2 && p[0] === Command.linkUpdate && p[1] === 0);

export const message = (data: Uint8Array): Uint8Array => concat([Uint8Array.of(Command.message), data]);

export const reliableMessage = (number: number, data: Uint8Array): Uint8Array => command(Command.reliableMessage, number, [], data);

/** A part without flags and data, outside of a long message, is a probe: acknowledged, and otherwise ignored. */
export const reliableMessageLong = (number: number, flags: number, data: Uint8Array): Uint8Array =>
  command(Command.reliableMessageLong, number, [flags], data);

export const reliableAck = (number: number, code = AckSuccess): Uint8Array => command(Command.reliableAck, number, [code]);

export const linkUp = (link: number): Uint8Array => command(Command.linkUp, link, []);

export const linkDown = (link: number): Uint8Array => command(Command.linkDown, link, []);

/** A ConnectionAck: result u8, protocol u16 only if the result is 0. */
export function parseConnectionAck(p: Uint8Array): { result: number; protocol: number } | undefined {
  if (p.length < 2 || (p[1] === Accepted && p.length < 4)) return undefined;
  return { result: p[1]!, protocol: p[1] === Accepted ? u16(p, 2) : 0 };
}

/** A LinkState offers a link. Its values are `count` times a type byte and the encoded value. */
export interface LinkState {
  readonly number: number;
  readonly link: number;
  readonly readOnly: boolean;
  readonly message: Uint8Array;
  readonly types: readonly ValueType[];
  /** The encoded values, each as long as its type says. */
  readonly values: readonly Uint8Array[];
}

/** Only the flags value 1 is read-only: all implementations compare the byte with 1. */
const readOnlyFlag = 1;

export function linkState(m: LinkState): Uint8Array {
  const [link, size, count] = [m.link, m.message.length, m.values.length];
  const head = command(Command.linkState, m.number, [link, link >> 8, m.readOnly ? readOnlyFlag : 0, size, size >> 8], m.message);
  const values = m.values.flatMap((value, i) => [Uint8Array.of(m.types[i]!.code), value]);
  return concat([head, Uint8Array.of(count, count >> 8), ...values]);
}

/** parseLinkState returns a LinkState whose message and values alias the datagram. */
export function parseLinkState(p: Uint8Array): LinkState | undefined {
  if (p.length < 8) return undefined;
  const end = 8 + u16(p, 6);
  if (end + 2 > p.length) return undefined;
  const types: ValueType[] = [];
  const values: Uint8Array[] = [];
  let at = end + 2;
  for (let n = u16(p, end); n > 0; n--) {
    const type = at < p.length ? valueTypes[p[at]!] : undefined;
    const size = type ? encodedSize(type, p, at + 1, p.length) : -1;
    if (size < 0) return undefined; // a count beyond the datagram costs one turn
    types.push(type!);
    values.push(p.subarray(at + 1, at + 1 + size));
    at += 1 + size;
  }
  return { number: u16(p, 1), link: u16(p, 3), readOnly: p[5] === readOnlyFlag, message: p.subarray(8, end), types, values };
}

/**
 * An Order says which of two LinkUpdates of an edge is the newer one: the generation grows when another edge takes the
 * session over, the counter with each LinkUpdate. A LinkUpdate without one counts as the oldest.
 */
export interface Order {
  readonly generation: number;
  readonly counter: number;
}

export const unordered: Order = { generation: 0, counter: 0 };

export const older = (a: Order, b: Order): boolean =>
  a.generation < b.generation || (a.generation === b.generation && a.counter < b.counter);

const generations = 2 ** 20;
const counters = 2 ** 44;

/** A Refusal tells which value of a write the edge or the relay has refused, and why. */
export interface Refusal {
  readonly link: number;
  readonly index: number;
  readonly code: number;
}

/** An Acknowledgement ends the write with a number. */
export interface Acknowledgement {
  readonly number: number;
  readonly refused: readonly Refusal[];
}

/**
 * A Trailer ends a LinkUpdate of an edge that granted writes: generation and counter, and acknowledgements up to the
 * last byte, which is the size of all that.
 */
export interface Trailer {
  readonly order: Order;
  readonly acks: readonly Acknowledgement[];
}

const refusalSize = 5;

/** parseTrailer reads the trailer at the end of a datagram whose links end at `links`; -1 if that is not known. */
export function parseTrailer(p: Uint8Array, links: number): Trailer | undefined {
  const end = p.length - 1;
  let at = end - p[end]!;
  if (links < 0 ? at < 2 : at !== links) return undefined;
  const uvarint = (): number => {
    for (let v = 0, scale = 1; at < end && scale < counters; scale *= 128) {
      const b = p[at++]!;
      v += (b & 127) * scale;
      if (b < 128) return v;
    }
    return NaN;
  };
  const order = { generation: uvarint(), counter: uvarint() };
  if (!(order.generation < generations && order.counter < counters)) return undefined;
  const acks: Acknowledgement[] = [];
  while (at < end) {
    const number = uvarint();
    const refusals = at < end ? p[at++]! : NaN;
    if (Number.isNaN(number) || !(at + refusals * refusalSize <= end)) return undefined;
    const refused = Array.from({ length: refusals }, (_, i) => {
      const from = at + i * refusalSize;
      return { link: u16(p, from), index: u16(p, from + 2), code: p[from + 4]! };
    });
    at += refusals * refusalSize;
    acks.push({ number, refused });
  }
  return { order, acks };
}

/** Java reads both counts of a LinkUpdate as signed bytes. */
const countMax = 127;

/** A LinkUpdate with a number has at most so many values. */
const numberedMax = 32;

/** The most bytes of a number, which counts LinkUpdates. */
const numberSize = 5;

/**
 * An UpdateWriter packs changed values into LinkUpdates of at most `sizeMax` bytes; a value that needs
 * more gets a datagram of its own. A LinkUpdate is a u8 number of links, each with a u16 LinkId, a u8
 * number of values, and for each value a u16 index and the value. Behind them may be a number (LEB128).
 */
export class UpdateWriter {
  #p: Uint8Array;
  #size = 0;
  #link = -1;
  #count = 0; // place of the open link's number of values
  #values = 0;
  #number = 0;

  /** `begin` is called for each datagram, and returns the number that it ends with; 0 for none. */
  constructor(private readonly sizeMax: number, private readonly send: (datagram: Uint8Array) => void, private readonly begin: () => number = () => 0) {
    this.#p = new Uint8Array(sizeMax);
  }

  add(link: number, index: number, value: Uint8Array): void {
    const need = 2 + value.length;
    const fits = link === this.#link && this.#p[this.#count]! < countMax && this.#fits(need);
    if (!fits) this.#open(link, need);
    putU16(this.#p, this.#size, index);
    this.#p.set(value, this.#size + 2);
    this.#size += need;
    this.#values++;
    this.#p[this.#count]!++;
  }

  /** fits reports whether the open datagram has room for so many bytes. */
  #fits(need: number): boolean {
    if (this.#number > 0) return this.#values < numberedMax && this.#size + need + numberSize <= this.sizeMax;
    return this.#size + need <= this.sizeMax;
  }

  #open(link: number, need: number): void {
    if (this.#size === 0 || this.#p[1] === countMax || !this.#fits(3 + need)) {
      this.flush();
      if (5 + need + numberSize > this.#p.length) this.#p = new Uint8Array(5 + need + numberSize);
      this.#p[0] = Command.linkUpdate;
      this.#p[1] = 0;
      this.#size = 2;
      this.#values = 0;
      this.#number = this.begin();
    }
    this.#p[1]!++;
    putU16(this.#p, this.#size, link);
    this.#p[this.#size + 2] = 0;
    this.#count = this.#size + 2;
    this.#size += 3;
    this.#link = link;
  }

  /** flush sends the open datagram. */
  flush(): void {
    if (this.#size > 0) {
      for (let n = this.#number; n > 0; n = Math.floor(n / 128)) this.#p[this.#size++] = (n & 127) | (n > 127 ? 128 : 0);
      this.send(this.#p.slice(0, this.#size));
    }
    this.#size = 0;
    this.#link = -1;
  }
}

/** An UpdateTarget has the layout of linked states and takes their values. */
export interface UpdateTarget {
  /** types returns the layout of a link, or undefined if it is not up. */
  types(link: number): readonly ValueType[] | undefined;
  /** value takes a value that lies in p from `at` on. */
  value(link: number, index: number, p: Uint8Array, at: number, size: number): void;
}

/**
 * readUpdate reads a LinkUpdate. It applies the links before the first one that is not up or does not
 * parse, and reports false if it had to stop there: lengths follow from layouts only, and C++ announces
 * more links than follow.
 */
export function readUpdate(p: Uint8Array, target: UpdateTarget): boolean {
  return walkUpdate(p, target, (link, types, at, end) => {
    while (at < end) {
      const index = u16(p, at);
      const size = encodedSize(types[index]!, p, at + 2, end);
      target.value(link, index, p, at + 2, size);
      at += 2 + size;
    }
  }) >= 0;
}

/** linksEnd returns where the links of a LinkUpdate end, or -1 if one of them cannot be read. */
export const linksEnd = (p: Uint8Array, target: UpdateTarget): number => walkUpdate(p, target, () => {});

/** walkUpdate calls `values` with where the values of each link are, and returns where the last ones end, or -1. */
function walkUpdate(p: Uint8Array, target: UpdateTarget, values: (link: number, types: readonly ValueType[], at: number, end: number) => void): number {
  if (p.length < 2) return -1;
  let at = 2;
  for (let links = p[1]!; links > 0; links--) {
    if (at + 3 > p.length) return -1;
    const link = u16(p, at);
    const types = target.types(link);
    const end = types ? endOfValues(p, at + 2, types) : -1;
    if (end < 0) return -1;
    values(link, types!, at + 3, end);
    at = end;
  }
  return at;
}

/** endOfValues returns where the values end whose number is at `at`, or -1 if they do not parse. */
function endOfValues(p: Uint8Array, at: number, types: readonly ValueType[]): number {
  let values = p[at++]!;
  for (; values > 0; values--) {
    const type = at + 2 <= p.length ? types[u16(p, at)] : undefined;
    const size = type ? encodedSize(type, p, at + 2, p.length) : -1;
    if (size < 0) return -1;
    at += 2 + size;
  }
  return at;
}

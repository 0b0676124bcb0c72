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

/** Java reads both counts of a LinkUpdate as signed bytes. */
const countMax = 127;

/**
 * An UpdateWriter packs changed values into LinkUpdates of at most `sizeMax` bytes; a value that needs
 * more gets a datagram of its own. A LinkUpdate is a u8 number of links, each with a u16 LinkId, a u8
 * number of values, and for each value a u16 index and the value.
 */
export class UpdateWriter {
  #p: Uint8Array;
  #size = 0;
  #link = -1;
  #count = 0; // place of the open link's number of values

  constructor(private readonly sizeMax: number, private readonly send: (datagram: Uint8Array) => void) {
    this.#p = new Uint8Array(sizeMax);
  }

  add(link: number, index: number, value: Uint8Array): void {
    const need = 2 + value.length;
    const fits = link === this.#link && this.#p[this.#count]! < countMax && this.#size + need <= this.sizeMax;
    if (!fits) this.#open(link, need);
    putU16(this.#p, this.#size, index);
    this.#p.set(value, this.#size + 2);
    this.#size += need;
    this.#p[this.#count]!++;
  }

  #open(link: number, need: number): void {
    if (this.#size === 0 || this.#p[1] === countMax || this.#size + 3 + need > this.sizeMax) {
      this.flush();
      if (5 + need > this.#p.length) this.#p = new Uint8Array(5 + need);
      this.#p[0] = Command.linkUpdate;
      this.#p[1] = 0;
      this.#size = 2;
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
    if (this.#size > 0) this.send(this.#p.slice(0, this.#size));
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
  if (p.length < 2) return false;
  let at = 2;
  for (let links = p[1]!; links > 0; links--) {
    if (at + 3 > p.length) return false;
    const link = u16(p, at);
    const types = target.types(link);
    const end = types ? endOfValues(p, at + 2, types) : -1;
    if (end < 0) return false;
    for (at += 3; at < end; ) {
      const index = u16(p, at);
      const size = encodedSize(types![index]!, p, at + 2, end);
      target.value(link, index, p, at + 2, size);
      at += 2 + size;
    }
  }
  return true;
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

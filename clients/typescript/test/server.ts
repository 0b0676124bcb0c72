import { concat } from "../src/bytes.js";
import { hello } from "../src/command.js";
import { Command, connectionAck, linksEnd, PartFirst, PartLast, readUpdate, reliableAck, reliableMessage, reliableMessageLong, seq, linkState, linkUp, parseLinkState, u16, unwrap, UpdateWriter, type LinkState } from "../src/wire.js";
import { encodeValue, typeNamed, type Settable, type ValueType } from "../src/value.js";
import { hex } from "./bytes.js";

/** A state of the Server: its layout, and the values that it has. */
export interface ServerState {
  readonly link: number;
  readonly message: string;
  readonly types: readonly ValueType[];
  readonly values: Uint8Array[];
  readonly written: number[]; // by index: the number of the client's latest write
  readonly readOnly: boolean;
  up: boolean;
}

interface Sent {
  readonly datagram: Uint8Array;
  readonly state: ServerState | undefined; // that it offers
  last: number;
  acked: boolean;
}

const windowSize = 10;
const resend = 200; // ms
const refresh = 150; // ms after which it sends all values again

/** uvarint writes a number as LEB128. */
export function uvarint(n: number): Uint8Array {
  const out: number[] = [];
  for (; n > 127; n = Math.floor(n / 128)) out.push((n & 127) | 128);
  return Uint8Array.of(...out, n);
}

/** readUvarint reads a number at the end of a datagram. */
export const readUvarint = (p: Uint8Array, at: number): number => p.subarray(at).reduce((n, b, i) => n + (b & 127) * 128 ** i, 0);

/** withTrailer ends a LinkUpdate with its order and acknowledgements. */
export function withTrailer(p: Uint8Array, generation: number, counter: number, ...acks: Uint8Array[]): Uint8Array {
  const trailer = concat([uvarint(generation), uvarint(counter), ...acks]);
  return concat([p, trailer, Uint8Array.of(trailer.length)]);
}

/** The answer to the hello that grants commands and writes. */
export const granted = Uint8Array.of(0xc5, 0x81, 0, 0, 0, 3, 0, 0, 0);

/**
 * A Server is a small edge for tests, in virtual time. It acknowledges a command when its turn has come, as
 * edges do, repeats what is not acknowledged, and sends all values of its states again and again, in order. It grants writes.
 */
export class Server {
  readonly messages: string[] = []; // what the client sent reliably, in order
  readonly unreliable: string[] = [];
  readonly states = new Map<number, ServerState>();
  readonly peers = new Map<number, LinkState>(); // what the client offered
  readonly peerValues = new Map<number, string[]>(); // in hex
  first = -1; // the client's first reliable command

  #next = 0; // number of the next command of the client
  #held = new Map<number, Uint8Array>();
  #long: Uint8Array[] = [];
  #numbers = 0;
  #flight: Sent[] = [];
  #queue: { build: (number: number) => Uint8Array; state?: ServerState }[] = [];
  #refreshed = 0;
  #granted = false;
  #counter = 0;
  readonly #acks = new Set<number>();

  constructor(private readonly send: (p: Uint8Array) => void) {}

  get idle(): boolean {
    return this.#flight.length === 0 && this.#queue.length === 0;
  }

  message(data: Uint8Array): void {
    if (data.length <= 1357) {
      this.#queue.push({ build: (n) => reliableMessage(n, data) });
      return;
    }
    for (let at = 0; at < data.length; at += 1190) {
      const flags = (at === 0 ? PartFirst : 0) | (at + 1190 >= data.length ? PartLast : 0);
      this.#queue.push({ build: (n) => reliableMessageLong(n, flags, data.subarray(at, at + 1190)) });
    }
  }

  offer(link: number, message: string, readOnly: boolean, ...values: [type: string, value: Settable][]): ServerState {
    const types = values.map(([type]) => typeNamed(type));
    const state = { link, message, types, values: values.map(([, v], i) => encodeValue(types[i]!, v)), written: [], readOnly, up: false };
    this.states.set(link, state);
    const m = { link, readOnly, message: new TextEncoder().encode(message), types, values: state.values };
    this.#queue.push({ state, build: (number) => linkState({ number, ...m }) });
    return state;
  }

  set(state: ServerState, index: number, value: Settable): void {
    state.values[index] = encodeValue(state.types[index]!, value);
    this.#refreshed = 0;
  }

  receive(p: Uint8Array): void {
    switch (p[0]) {
      case Command.connectionRequest:
        return this.send(connectionAck(0));
      case Command.message:
        this.unreliable.push(new TextDecoder().decode(p.subarray(1)));
        return;
      case Command.reliableMessage: case Command.linkState: case Command.reliableMessageLong:
        return this.#receiveReliable(p);
      case Command.reliableAck:
        return this.#acknowledged(u16(p, 1));
      case Command.linkUp: {
        const state = this.states.get(u16(p, 1));
        if (state) state.up = true;
        return;
      }
      case Command.linkUpdate:
        return this.#receiveUpdate(p);
    }
  }

  #receiveUpdate(p: Uint8Array): void {
    let number = 0;
    const target = {
      types: (link: number) => this.states.get(link)?.types ?? this.peers.get(link)?.types,
      value: (link: number, index: number, bytes: Uint8Array, at: number, size: number) => this.#written(link, index, number, bytes.slice(at, at + size)),
    };
    const end = linksEnd(p, target);
    if (end < 0) return;
    number = readUvarint(p, end);
    readUpdate(p, target);
    if (number > 0) this.#acks.add(number);
  }

  #written(link: number, index: number, number: number, value: Uint8Array): void {
    const state = this.states.get(link);
    if (!state || state.readOnly) {
      this.peerValues.get(link)![index] = hex(value);
    } else if (number === 0 || number > (state.written[index] ?? 0)) {
      state.values[index] = value;
      state.written[index] = number;
    }
  }

  advance(now: number): void {
    this.#flight = this.#flight.slice(Math.max(0, this.#flight.findIndex((o) => !o.acked)));
    if (this.#flight.every((o) => o.acked)) this.#flight = [];
    while (this.#flight.length < windowSize && this.#queue.length > 0) {
      const { build, state } = this.#queue.shift()!;
      this.#flight.push({ datagram: build(seq(this.#numbers++)), state, last: -Infinity, acked: false });
    }
    for (const o of this.#flight.filter((o) => !o.acked && now - o.last >= resend)) {
      o.last = now;
      this.send(o.datagram);
    }
    if (now - this.#refreshed < refresh) return;
    this.#refreshed = now;
    this.#acknowledge();
    const writer = new UpdateWriter(1000, (p) => this.#update(p));
    for (const s of this.states.values()) s.values.forEach((value, i) => s.up && writer.add(s.link, i, value));
    writer.flush();
    for (const link of this.peers.keys()) this.send(linkUp(link));
  }

  #acknowledge(): void {
    const acks = [...this.#acks].slice(-20).map((n) => concat([uvarint(n), Uint8Array.of(0)]));
    this.#acks.clear();
    if (acks.length > 0) this.#update(Uint8Array.of(Command.linkUpdate, 0), acks);
  }

  #update(p: Uint8Array, acks: Uint8Array[] = []): void {
    this.send(this.#granted ? withTrailer(p, 1, ++this.#counter, ...acks) : p);
  }

  #acknowledged(number: number): void {
    const o = this.#flight[unwrap(number, this.#numbers) - (this.#numbers - this.#flight.length)];
    if (!o) return;
    o.acked = true;
    if (o.state) o.state.up = true; // edges presume that, because LinkUp may get lost
  }

  #receiveReliable(p: Uint8Array): void {
    const n = unwrap(u16(p, 1), this.#next);
    if (n > this.#next && n < this.#next + 16) this.#held.set(n, p.slice());
    if (n > this.#next) return;
    this.send(reliableAck(seq(n)));
    if (n < this.#next) return;
    this.#held.delete(n);
    this.#next++;
    this.#deliver(p);
    const following = this.#held.get(this.#next);
    if (following) this.#receiveReliable(following);
  }

  #deliver(p: Uint8Array): void {
    if (this.first < 0) this.first = p[0]!;
    if (hex(p.subarray(3)) === hex(hello)) {
      this.#granted = true;
      this.message(granted);
    } else if (p[0] === Command.reliableMessage) this.messages.push(new TextDecoder().decode(p.subarray(3)));
    if (p[0] === Command.linkState) {
      const m = parseLinkState(p.slice())!;
      this.peers.set(m.link, m);
      this.peerValues.set(m.link, m.values.map(hex));
    }
    if (p[0] !== Command.reliableMessageLong) return;
    if (p[3]! & PartFirst) this.#long = [];
    this.#long.push(p.slice(4));
    if (p[3]! & PartLast) this.messages.push(this.#long.map((part) => new TextDecoder().decode(part)).join(""));
  }
}

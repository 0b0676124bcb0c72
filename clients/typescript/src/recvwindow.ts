import { concat, copy } from "./bytes.js";
import { Command, PartFirst, PartLast, unwrap } from "./wire.js";

/** Commands that are held before their turn; edges have at most 20 in flight, and repeat what does not fit. */
const aheadMax = 16;
const heldBytesMax = 256 << 10;

/** Commands behind the next one that are acknowledged again: the acknowledgement was lost. */
const behindMax = 4_096;

/** Bytes of a long message; the edge's limit. */
const longMax = 1 << 20;

/** What a window makes of a number. */
export type Arrival = "due" | "early" | "repeat" | "outside";

/** A RecvWindow puts reliable commands into order and passes each on once. */
export class RecvWindow {
  #next = 0;
  #held = new Map<number, Uint8Array>();
  #heldBytes = 0;
  #parts: Uint8Array[] | undefined;
  #partBytes = 0;

  /** judge says what a command with this number is. All but those outside are to be acknowledged. */
  judge(number: number, size: number): Arrival {
    const n = unwrap(number, this.#next);
    if (n === this.#next) return "due";
    if (n < 0 || n >= this.#next + aheadMax || n + behindMax < this.#next) return "outside";
    if (n < this.#next || this.#held.has(n)) return "repeat";
    return this.#heldBytes + size > heldBytesMax ? "outside" : "early";
  }

  /** hold copies a command that came early. */
  hold(number: number, datagram: Uint8Array): void {
    this.#held.set(unwrap(number, this.#next), copy(datagram));
    this.#heldBytes += datagram.length;
  }

  /** advance counts the command that was due, and returns the next one if it is held. */
  advance(): Uint8Array | undefined {
    this.#next++;
    const datagram = this.#held.get(this.#next);
    if (datagram) this.#heldBytes -= datagram.length;
    this.#held.delete(this.#next);
    return datagram;
  }

  /**
   * join takes a part of a long message, in the order of numbers. It returns the message with the last
   * part, undefined while there is none, and null for one that is too long. A part that belongs to no
   * message is a probe.
   */
  join(datagram: Uint8Array): Uint8Array | undefined | null {
    const flags = datagram[3]!;
    if (flags & PartFirst) {
      this.#parts = [];
      this.#partBytes = 0;
    }
    if (!this.#parts) return undefined;
    this.#partBytes += datagram.length - 4;
    if (this.#partBytes > longMax) return null;
    this.#parts.push(copy(datagram, 4));
    if (!(flags & PartLast)) return undefined;
    const whole = concat(this.#parts);
    this.#parts = undefined;
    return whole.length > 0 ? whole : undefined;
  }
}

/** isReliable reports whether a datagram is a numbered command that is complete. */
export function isReliable(p: Uint8Array): boolean {
  switch (p[0]) {
    case Command.reliableMessage: return p.length > 3; // an empty message would be damaged
    case Command.linkState: return p.length >= 10;
    case Command.reliableMessageLong: return p.length >= 4;
    default: return false;
  }
}

import { copy } from "./bytes.js";
import { PartFirst, PartLast, reliableMessage, reliableMessageLong, seq, unwrap } from "./wire.js";

/** Commands in flight; every implementation assumes ten. */
const windowSize = 10;

/** Libraries send a message of up to 1,357 bytes as one command, and cut longer ones. */
export const wholeMax = 1_357;
const partHead = 10; // bytes of a datagram that a part leaves free: 1,190 of 1,200

/** Times in ms. */
const resendLeast = 60; // two frames of an application, and one that it drops
const resendMost = 500; // also where no round trip is known
const variationLeast = 40; // acknowledgements come in steps of a frame
const giveUpAfter = 10_000;

const overtakersMin = 2; // that show the loss of a command: one may have been overtaken by chance

/** Messages that wait for the window. Beyond that, send throws. */
const backlogMessages = 256;
const backlogBytes = 1 << 20;
const messageMax = 1 << 20; // the edge's limit

interface Outgoing {
  readonly datagram: Uint8Array;
  readonly message: number; // of which it is a part; 0 for other commands
  readonly first: number;
  last: number;
  sends: number;
  overtakers: number;
  acked: boolean;
}

/**
 * A RoundTrip estimates how long acknowledgements take, as RFC 6298 does for TCP. Only commands that
 * were sent once count: the acknowledgement of another one may belong to an earlier copy.
 */
export class RoundTrip {
  mean = 0;
  deviation = 0;
  least = 0; // before the first sample

  sample(took: number): void {
    const d = Math.max(1, took);
    this.least = this.least === 0 ? d : Math.min(this.least, d);
    if (this.mean === 0) {
      this.mean = d;
      this.deviation = d / 2;
      return;
    }
    this.deviation += (Math.abs(d - this.mean) - this.deviation) / 4;
    this.mean += (d - this.mean) / 8;
  }

  /** After this time an acknowledgement is not to be expected any more. */
  get longest(): number {
    if (this.mean === 0) return resendMost;
    return Math.min(resendMost, Math.max(resendLeast, this.mean + Math.max(4 * this.deviation, variationLeast)));
  }

  /** After this time an acknowledgement is late that others overtook (RFC 8985). */
  get usual(): number {
    return this.mean === 0 ? resendMost : Math.min(resendMost, this.mean + Math.max(this.deviation, this.mean / 4));
  }
}

/** A loss of a new path is taken for one sending in four, which four that arrive refute. */
const lossFirst = 0.25;
const lossMemory = 16; // sendings

/**
 * A SendWindow numbers reliable commands, has at most ten in flight, and repeats those that are not
 * acknowledged in time. A message keeps its number and its bytes for good.
 */
export class SendWindow {
  readonly trip = new RoundTrip();
  repeats = 0;
  answered = false; // the edge has acknowledged something
  heard = 0; // when the latest datagram came; the connection notes it

  #next = 0;
  #flight: Outgoing[] = []; // numbers next-length to next-1
  #queue: Uint8Array[] = [];
  #queued = 0; // bytes of queue
  #partAt = 0; // bytes of the first message that were sent in parts
  #message = 0; // the messages that were begun
  #commands: ((number: number) => Uint8Array)[] = []; // what goes before messages: offers, probes
  #loss = lossFirst;
  #patientUntil = 0; // commands count as sent no earlier when they are given up
  #heldUntil = -Infinity; // the edge acknowledges what was sent before only behind a command that got lost

  constructor(private readonly datagramMax: number) {}

  /** Whether everything was acknowledged. */
  get idle(): boolean {
    return this.#flight.length === 0 && this.#queue.length === 0 && this.#commands.length === 0;
  }

  /** The messages that were not acknowledged. */
  get unacknowledged(): number {
    const begun = new Set(this.#flight.filter((o) => !o.acked && o.message > 0).map((o) => o.message));
    if (this.#partAt > 0) begun.delete(this.#message); // it is in the queue, too
    return begun.size + this.#queue.length;
  }

  /** send queues a message, which it copies. */
  send(data: Uint8Array): void {
    if (data.length === 0) throw new RangeError("send: the message is empty");
    if (data.length > messageMax) throw new RangeError(`send: the message has ${data.length} bytes, at most ${messageMax}`);
    if (this.#queue.length >= backlogMessages || (this.#queued > 0 && this.#queued + data.length > backlogBytes)) {
      throw new Error(`send: ${this.#queue.length} messages with ${this.#queued} bytes wait already`);
    }
    this.#queue.push(copy(data));
    this.#queued += data.length;
  }

  /** add queues another command, which goes before messages. */
  add(command: (number: number) => Uint8Array): void {
    this.#commands.push(command);
  }

  /** probe asks for an acknowledgement, while the window is idle. Inside a long message it would be a part of it. */
  probe(): void {
    this.add((number) => reliableMessageLong(number, 0, new Uint8Array()));
  }

  /** next takes the next new command into flight and returns its datagram, if the window has room. */
  next(now: number): Uint8Array | undefined {
    if (this.#flight.length >= windowSize) return undefined;
    const inMessage = this.#partAt > 0 || this.#commands.length === 0;
    const datagram = this.#build(seq(this.#next));
    if (!datagram) return undefined;
    this.#next++;
    this.#flight.push({ datagram, message: inMessage ? this.#message : 0, first: now, last: now, sends: 1, overtakers: 0, acked: false });
    return datagram;
  }

  /** Whether `next` would return a command. */
  get ready(): boolean {
    return this.#flight.length < windowSize && (this.#queue.length > 0 || this.#commands.length > 0);
  }

  #build(number: number): Uint8Array | undefined {
    const command = this.#partAt === 0 ? this.#commands.shift() : undefined;
    if (command) return command(number);
    const data = this.#queue[0];
    if (!data) return undefined;
    if (this.#partAt === 0) this.#message++;
    const whole = Math.max(wholeMax, this.datagramMax - 3);
    const rest = data.length - this.#partAt;
    const size = data.length <= whole ? rest : Math.min(rest, this.datagramMax - partHead);
    const part = data.subarray(this.#partAt, this.#partAt + size);
    const flags = (this.#partAt === 0 ? PartFirst : 0) | (size === rest ? PartLast : 0);
    this.#partAt += size;
    if (size === rest) {
      this.#queue.shift();
      this.#queued -= data.length;
      this.#partAt = 0;
    }
    return data.length <= whole ? reliableMessage(number, part) : reliableMessageLong(number, flags, part);
  }

  /** acknowledge handles the acknowledgement of a command. It reports false if that is not in flight. */
  acknowledge(number: number, now: number): boolean {
    const base = this.#next - this.#flight.length;
    const n = unwrap(number, this.#next);
    const o = this.#flight[n - base];
    if (!o || o.acked) return false;
    o.acked = this.answered = true;
    this.#time(o, n === base, now);
    for (const other of this.#flight) {
      if (o.sends === 1 && !other.acked && other.last <= o.first) other.overtakers++;
    }
    while (this.#flight[0]?.acked) this.#flight.shift();
    return true;
  }

  /** again makes a command due at once, because the edge asks for it. */
  again(number: number): void {
    const o = this.#flight[unwrap(number, this.#next) - (this.#next - this.#flight.length)];
    if (o && !o.acked) o.last = -Infinity;
  }

  /**
   * time learns from an acknowledgement. The edge acknowledges a command when its turn has come, so one
   * that waited for another says nothing about the round trip.
   */
  #time(o: Outgoing, oldest: boolean, now: number): void {
    // An acknowledgement that comes so soon is that of the first copy. (By the mean it would not be sure: where
    // the pause is longer than the round trip, wrong samples would make the mean grow, and with it the pause.)
    const needless = o.sends === 2 && 2 * (now - o.last) < this.trip.least;
    if (needless || (o.sends === 1 && oldest && o.first >= this.#heldUntil)) this.trip.sample(now - o.first);
    if (o.sends > 1) this.#heldUntil = now;
    if (o.sends === 1) this.#learn(false);
    else if (needless) this.#loss = Math.max(0, this.#loss - 1 / lossMemory);
  }

  #learn(lost: boolean): void {
    this.#loss += ((lost ? 1 : 0) - this.#loss) / lossMemory;
  }

  /**
   * copies is how often the oldest command is repeated, for which all others wait. An edge from which nothing
   * comes may stand still, and one that has acknowledged nothing may be judging the login.
   */
  #copies(now: number): number {
    if (!this.answered || now - this.heard >= resendMost) return 1;
    return this.#loss > 0.3 ? 3 : this.#loss > 0.1 ? 2 : 1;
  }

  /**
   * The pause doubles, because the edge may stand still; on a path with loss it does so later. A command
   * that two others overtook is late after a round trip and a quarter.
   */
  #resendAt(o: Outgoing, copies: number): number {
    if (o.overtakers >= overtakersMin) return o.last + this.trip.usual;
    return o.last + Math.min(resendMost, this.trip.longest * 2 ** Math.floor((o.sends - 1) / copies));
  }

  /** resend repeats what is due. It reports false if a command waits for so long that the edge is gone. */
  resend(now: number, send: (datagram: Uint8Array) => void): boolean {
    const copies = this.#copies(now);
    for (const [i, o] of this.#flight.entries()) {
      if (o.acked) continue;
      if (now >= this.#givesUpAt(o)) return false;
      if (now < this.#resendAt(o, copies)) continue;
      const asked = o.last === -Infinity; // that says nothing about loss
      o.last = now;
      o.sends++;
      o.overtakers = 0;
      if (!asked) this.#learn(true);
      for (let n = i === 0 ? copies : 1; n > 0; n--) {
        this.repeats++;
        send(o.datagram);
      }
    }
    return true;
  }

  #givesUpAt(o: Outgoing): number {
    return Math.max(o.first, this.#patientUntil) + giveUpAfter;
  }

  /** forgive begins the time anew after which commands are given up: nothing could be heard until now. */
  forgive(now: number): void {
    this.#patientUntil = now;
  }

  /**
   * resume goes on over another transport: everything in flight is due at once. Its acknowledgements say
   * nothing about the round trip.
   */
  resume(now: number): void {
    this.forgive(now);
    this.heard = now;
    for (const o of this.#flight) {
      o.sends = Math.max(o.sends, 2);
      o.last = -Infinity;
    }
  }

  /** When the oldest command was sent that is not acknowledged, or could be after a pause; Infinity without one. */
  get waitsSince(): number {
    const oldest = this.#flight[0];
    return oldest ? Math.max(oldest.first, this.#patientUntil) : Infinity;
  }

  /** nextTimeout returns when resend has something to do. */
  nextTimeout(now: number): number {
    const copies = this.#copies(now);
    let at = Infinity;
    for (const o of this.#flight) if (!o.acked) at = Math.min(at, this.#resendAt(o, copies), this.#givesUpAt(o));
    return at;
  }
}


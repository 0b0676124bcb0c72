import type { State } from "./state.js";
import type { Value, ValueType } from "./value.js";

/** Samples of a value that are remembered: half a second at 30 changes a second. */
const samplesMax = 16;

/** The time of the first sample, which holds for all times before the second. */
const longAgo = -1e12;

const delayFirst = 100; // ms, until the pace of a state is known
const delayMax = 500;
const slew = 0.05; // how much faster or slower than time the delay may change
const aheadMax = 200; // by how much changes that come at once are spread, at half the usual time from each other
const jitters = 4; // the deviations that the delay covers: with fewer, late values make the motion stop

/**
 * A Playout decides how far behind a state is shown: by the usual time between two changes, and so much
 * more as that time varies. It follows RFC 6298 in estimating both.
 */
export class Playout {
  #interval = 0;
  #deviation = 0;
  #arrived = -Infinity;
  #began = -Infinity;
  #stamp = -Infinity;
  #delay = 0;
  #asked = -Infinity;

  /** The delay in ms. */
  get delay(): number {
    return this.#delay;
  }

  /** When the changes of the latest datagram are shown, but for the delay. */
  get stamp(): number {
    return this.#stamp;
  }

  /**
   * arrive notes that a value changes at a time, and returns when its motion began: with the changes
   * before, or after a pause a moment ago. Until then the old value held.
   */
  arrive(now: number): number {
    const gap = now - this.#arrived;
    if (gap === 0) return this.#began; // another value of the same datagram
    this.#arrived = now;
    if (gap > delayMax) {
      this.#began = now - (this.#interval || delayFirst);
      this.#stamp = now;
      return this.#began;
    }
    this.#began = this.#stamp;
    this.#stamp = Math.min(now + aheadMax, Math.max(now, this.#stamp + this.#interval / 2));
    if (this.#interval === 0) {
      this.#interval = gap;
      this.#deviation = gap / 2;
    } else {
      this.#deviation += (Math.abs(gap - this.#interval) - this.#deviation) / 8;
      this.#interval += (gap - this.#interval) / 8;
    }
    return this.#began;
  }

  /** moment returns the time that is shown at a time. */
  moment(t: number): number {
    const wanted = this.#interval === 0 ? delayFirst : Math.min(this.#interval + jitters * this.#deviation, delayMax);
    const step = slew * Math.max(0, t - this.#asked);
    this.#delay = this.#delay === 0 ? wanted : this.#delay + Math.max(-step, Math.min(step, wanted - this.#delay));
    this.#asked = t;
    return t - this.#delay;
  }
}

/** A Track is the latest values of one value of a state, with the times of their arrival. */
class Track {
  readonly out: Float32Array | Float64Array;
  readonly #times = new Float64Array(samplesMax);
  readonly #values: Float64Array;
  #count = 0; // of all samples; the newest is number count-1

  constructor(private readonly type: ValueType) {
    this.out = type.width === 8 ? new Float64Array(type.components) : new Float32Array(type.components);
    this.#values = new Float64Array(samplesMax * type.components);
  }

  get newest(): number {
    return this.#times[(this.#count - 1) % samplesMax]!;
  }

  push(t: number, state: State, i: number): void {
    const slot = this.#count++ % samplesMax;
    this.#times[slot] = t;
    state.read(i, this.#values, slot * this.type.components);
  }

  /** show writes the value of a time to `out`: between two samples a part of each. */
  show(t: number): void {
    const first = Math.max(0, this.#count - samplesMax);
    let n = this.#count - 1;
    while (n > first && this.#times[n % samplesMax]! > t) n--;
    const slot = n % samplesMax;
    const from = this.#times[slot]!;
    if (n === this.#count - 1 || t <= from) {
      this.#mix(slot, slot, 0);
      return;
    }
    const next = (n + 1) % samplesMax;
    this.#mix(slot, next, (t - from) / (this.#times[next]! - from));
  }

  #mix(from: number, to: number, part: number): void {
    const n = this.type.components;
    const turn = n === 4 ? this.#turn(from, to) : 1;
    for (let c = 0; c < n; c++) {
      const a = this.#values[from * n + c]!;
      this.out[c] = a + (turn * this.#values[to * n + c]! - a) * part;
    }
    if (n === 4) normalise(this.out);
  }

  /** turn returns -1 if a quaternion has to be negated to be the nearer of the two that mean the same rotation. */
  #turn(from: number, to: number): number {
    let dot = 0;
    for (let c = 0; c < 4; c++) dot += this.#values[from * 4 + c]! * this.#values[to * 4 + c]!;
    return dot < 0 ? -1 : 1;
  }
}

function normalise(q: Float32Array | Float64Array): void {
  const length = Math.sqrt(q[0]! * q[0]! + q[1]! * q[1]! + q[2]! * q[2]! + q[3]! * q[3]!);
  if (length > 0) for (let c = 0; c < 4; c++) q[c] = q[c]! / length;
}

/** A Past is a state as it was a moment ago; see State.at. It begins to remember when it is made. */
export class Past {
  readonly #playout = new Playout();
  readonly #tracks: (Track | undefined)[];
  #moment = 0;

  constructor(private readonly state: State) {
    this.#tracks = state.layout.types.map((type, i) => {
      if (type.kind !== "float") return undefined;
      const track = new Track(type);
      track.push(longAgo, state, i);
      return track;
    });
  }

  /** How far behind the state is shown, in ms. */
  get delay(): number {
    return this.#playout.delay;
  }

  /** get returns a value as it was. An array that it returns belongs to the Past. */
  get(value: number | string): Value {
    const i = this.state.layout.index(value);
    const track = this.#tracks[i];
    if (!track) return this.state.get(i);
    track.show(this.#moment);
    return track.out.length === 1 ? track.out[0]! : track.out;
  }

  /** read is State.read of the past. It never allocates. */
  read(value: number | string, out: { [i: number]: number }, offset = 0): number {
    const i = this.state.layout.index(value);
    const track = this.#tracks[i];
    if (!track) return this.state.read(i, out, offset);
    track.show(this.#moment);
    for (let c = 0; c < track.out.length; c++) out[offset + c] = track.out[c]!;
    return track.out.length;
  }

  /** moveTo says which time it is. @internal */
  moveTo(t: number): void {
    this.#moment = this.#playout.moment(t);
  }

  /** before notes that value i is about to change: it held until the motion began. @internal */
  before(i: number, now: number): void {
    const track = this.#tracks[i];
    if (!track) return;
    const since = this.#playout.arrive(now);
    if (since > track.newest) track.push(since, this.state, i);
  }

  /** after notes that value i has changed. @internal */
  after(i: number): void {
    this.#tracks[i]?.push(this.#playout.stamp, this.state, i);
  }
}

import { publish } from "./api.js";
import type { Live } from "./live.js";
import type { Row } from "./model.js";

/** A step is published so often in ms, if the one before is. */
const stepEvery = 80;

const ways: { [key: string]: [number, number] } = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/** A Walk moves a state while arrow keys are down. It publishes, as a game server does, so NATS decides whether it may. */
export class Walk {
  #held = new Set<string>();
  #timer = 0;
  #busy = false;
  #at: (number | null)[] | undefined; // where it walks; undefined while no key is down
  #stepped = 0;

  /**
   * @param value is the index of the value that is the place.
   * @param speed is in units of the map, per second.
   * @param failed is told why a step was not made; "" if it was.
   */
  constructor(private readonly live: Live, readonly row: Row, private readonly value: number, private readonly speed: number, private readonly failed: (why: string) => void) {
    this.#timer = window.setInterval(() => void this.#step(), stepEvery);
  }

  /** key tells that a key goes down or up. It returns false for a key that does not walk. */
  key(name: string, down: boolean): boolean {
    if (!ways[name]) return false;
    if (down) this.#held.add(name);
    else this.#held.delete(name);
    return true;
  }

  stand(): void {
    this.#held.clear();
  }

  end(): void {
    clearInterval(this.#timer);
  }

  async #step(): Promise<void> {
    const now = performance.now();
    if (this.#held.size === 0) return void (this.#at = undefined);
    if (this.#busy) return;
    const { row, live } = this;
    if (!this.#at) {
      const there = row.values[this.value];
      if (live.model.rows.get(row.n) !== row || !Array.isArray(there)) return this.failed("the state is gone");
      this.#at = [...there] as (number | null)[];
      this.#stepped = now - stepEvery;
    }
    const far = (this.speed * Math.min(500, now - this.#stepped)) / 1_000;
    this.#stepped = now;
    for (const name of this.#held) {
      live.model.place.axes.forEach((axis, i) => {
        const c = Math.min(axis, this.#at!.length - 1);
        this.#at![c] = (this.#at![c] ?? 0) + far * ways[name]![i]!;
      });
    }
    this.#busy = true;
    try {
      await publish(live.space, { op: "set", key: row.key, values: { [row.about.names[this.value] || String(this.value)]: this.#at } });
      this.failed("");
    } catch (error) {
      this.failed((error as Error).message);
    }
    this.#busy = false;
  }
}

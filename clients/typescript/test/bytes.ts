/** What tests use to write bytes and chance. */

export function hex(p: Uint8Array): string {
  return Array.from(p, (b) => b.toString(16).padStart(2, "0")).join("");
}

/** unhex reads hex digits, which spaces may separate. */
export function unhex(text: string): Uint8Array {
  return Uint8Array.from(text.replace(/\s/g, "").match(/../g) ?? [], (b) => parseInt(b, 16));
}

/** random returns a generator of numbers from 0 to 1 (mulberry32). SEED repeats the run of a test that failed. */
export function random(seed: number): () => number {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = a;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** seeds returns the seeds of a random test: `n` fixed ones, or the one in the environment. */
export function seeds(n: number): number[] {
  const { SEED } = process.env;
  return SEED ? [Number(SEED)] : Array.from({ length: n }, (_, i) => i + 1);
}

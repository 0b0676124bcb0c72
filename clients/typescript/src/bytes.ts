/** copy copies bytes. (Slices of a Buffer of Node are not copies.) */
export const copy = (p: Uint8Array, from = 0, to = p.length): Uint8Array => new Uint8Array(p.subarray(from, to));

/** concat returns the parts as one. */
export function concat(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

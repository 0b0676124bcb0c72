/**
 * A Budget is what the client may send. An edge drops datagrams of a session beyond 200 a second and
 * 64 KiB a second (--session-datagram-rate, --session-byte-rate), and what it drops has to be repeated, so
 * the client stays below. Answers to the edge are free there, and here.
 */
export class Budget {
  #bytes: number;
  #datagrams: number;
  #at = -Infinity;

  constructor(private readonly bytesPerSecond = 56 << 10, private readonly datagramsPerSecond = 160) {
    this.#bytes = bytesPerSecond;
    this.#datagrams = datagramsPerSecond;
  }

  /** pay takes a datagram of this size out of the budget, which may be overdrawn. */
  pay(size: number): void {
    this.#bytes -= size;
    this.#datagrams--;
  }

  /** allows reports whether another datagram may be sent. A second's worth is saved. */
  allows(now: number): boolean {
    const s = Math.max(0, now - this.#at) / 1000;
    this.#bytes = Math.min(this.bytesPerSecond, this.#bytes + s * this.bytesPerSecond);
    this.#datagrams = Math.min(this.datagramsPerSecond, this.#datagrams + s * this.datagramsPerSecond);
    this.#at = now;
    return this.#bytes > 0 && this.#datagrams >= 1;
  }

  /** allowedAt returns when allows is true. */
  allowedAt(now: number): number {
    if (this.allows(now)) return now;
    const bytes = Math.max(0, 1 - this.#bytes) / this.bytesPerSecond;
    const datagrams = Math.max(0, 1 - this.#datagrams) / this.datagramsPerSecond;
    return now + 1000 * Math.max(bytes, datagrams) + 1;
  }
}

/** A Handlers has a function type for each name of an event. */
type Handlers<E> = { [name in keyof E]: (...args: never[]) => void };

/** An Emitter calls the handlers of events, in the order in which they were added. */
export class Emitter<E extends Handlers<E>> {
  readonly #handlers = new Map<keyof E, Set<E[keyof E]>>();

  /** on adds a handler and returns what removes it. */
  on<N extends keyof E>(name: N, handler: E[N]): () => void {
    let set = this.#handlers.get(name);
    if (!set) this.#handlers.set(name, (set = new Set()));
    set.add(handler);
    return () => this.off(name, handler);
  }

  off<N extends keyof E>(name: N, handler: E[N]): void {
    this.#handlers.get(name)?.delete(handler);
  }

  /**
   * emit calls the handlers. What one throws is reported like any uncaught error, and keeps neither the
   * others nor the protocol from going on.
   */
  protected emit<N extends keyof E>(name: N, ...args: Parameters<E[N]>): void {
    const set = this.#handlers.get(name);
    if (!set) return;
    for (const handler of set) {
      try {
        (handler as (...args: Parameters<E[N]>) => void)(...args);
      } catch (error) {
        report(error);
      }
    }
  }
}

/** report has the runtime treat an error of the application like any uncaught one. */
export function report(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}

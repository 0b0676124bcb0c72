import { Model, type Frame } from "./model.js";

/** Without a frame for so long in ms the connection is given up. */
const silence = 8_000;

/** A Live keeps a Model up to date over a WebSocket, and connects again whenever that ends. */
export class Live {
  model = new Model();
  connected = false;
  problem = "";
  bytes = 0; // that came, since the page was opened

  #socket: WebSocket | undefined;
  #attempts = 0;
  #timer = 0;
  #closed = false;
  #heard = 0;

  /** @param onFrame is called after each frame, and when the connection comes or goes. */
  constructor(readonly space: string, private readonly onFrame: () => void) {
    this.#dial();
    this.#timer = window.setInterval(() => this.#watch(), 1_000);
  }

  close(): void {
    this.#closed = true;
    clearInterval(this.#timer);
    this.#socket?.close();
  }

  #dial(): void {
    const url = new URL(`api/live?space=${encodeURIComponent(this.space)}`, document.baseURI);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url);
    this.#socket = socket;
    this.#heard = performance.now();
    let first = true;
    socket.onmessage = ({ data }: MessageEvent<string>) => {
      if (this.#socket !== socket || this.#closed) return;
      this.#heard = performance.now();
      this.#attempts = 0;
      this.bytes += data.length;
      if (first) {
        const { place } = this.model;
        this.model = new Model(); // the copy begins anew
        this.model.place = place;
        first = false;
      }
      this.connected = true;
      this.problem = "";
      this.model.apply(JSON.parse(data) as Frame, this.#heard);
      this.onFrame();
    };
    socket.onclose = ({ reason }) => {
      if (this.#socket !== socket || this.#closed) return;
      this.#socket = undefined;
      this.connected = false;
      this.problem = reason || "the program that serves this page does not answer";
      this.onFrame();
      const pause = Math.min(5_000, 250 * 2 ** this.#attempts++) * (0.5 + Math.random() / 2);
      setTimeout(() => !this.#closed && !this.#socket && this.#dial(), pause);
    };
  }

  #watch(): void {
    if (this.#socket && performance.now() - this.#heard > silence) this.#socket.close();
  }
}

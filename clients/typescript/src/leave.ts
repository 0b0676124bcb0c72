import type { Clock } from "./client.js";
import type { Transport } from "./transport.js";
import { answersLeave, connectionLeave } from "./wire.js";

/** ConnectionCloses at most, and the ms between two of them. */
const sendingsMax = 10;
const pauseLeast = 20;
const pauseUsual = 50; // where no round trip is known
const pauseMost = 100;

/**
 * leave tells the edge that the connection has ended, and then closes the transport, which may lose or reorder
 * datagrams. DNP has no acknowledgement of that, so leave repeats it until the edge answers, a second at most.
 */
export function leave(transport: Transport, roundTrip: number, clock: Clock): Promise<void> {
  const pause = roundTrip > 0 ? Math.min(pauseMost, Math.max(pauseLeast, roundTrip / 2)) : pauseUsual;
  return new Promise((resolve) => {
    let sendings = 0;
    let cancel = () => {};
    const end = () => {
      cancel();
      transport.onDatagram = transport.onClose = () => {};
      resolve();
    };
    const finish = () => {
      end();
      transport.close();
    };
    const next = () => {
      if (sendings++ === sendingsMax) return finish();
      transport.send(connectionLeave());
      cancel = clock.after(pause, next);
    };
    transport.onDatagram = (p) => {
      if (answersLeave(p)) finish();
    };
    transport.onClose = end;
    next();
  });
}

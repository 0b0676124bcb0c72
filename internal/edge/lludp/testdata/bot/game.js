// A game server for the test, with as much of NATS as it needs.
const net = require('node:net');

class Game {
  constructor(address) {
    const [host, port] = address.split(':');
    this.subscriptions = new Map();
    this.last = 0;
    this.pending = Buffer.alloc(0);
    this.socket = net.connect(Number(port), host);
    this.socket.on('data', (b) => this.read(b));
    this.socket.write('CONNECT {"verbose":false,"headers":true}\r\n');
  }

  publish(subject, payload, reply = '') {
    const data = Buffer.from(payload);
    this.socket.write(Buffer.concat([Buffer.from(`PUB ${subject} ${reply ? reply + ' ' : ''}${data.length}\r\n`), data, Buffer.from('\r\n')]));
  }

  subscribe(subject, heard) {
    const id = String(++this.last);
    this.subscriptions.set(id, heard);
    this.socket.write(`SUB ${subject} ${id}\r\n`);
  }

  // ask publishes ops and returns the answer of the relay.
  ask(space, ops) {
    const inbox = `inbox.${++this.last}`;
    return new Promise((resolve) => {
      this.subscribe(inbox, (subject, data) => resolve(JSON.parse(data)));
      this.publish(`dnp.v1.publish.${space}`, JSON.stringify({ ops }), inbox);
    });
  }

  read(b) {
    this.pending = Buffer.concat([this.pending, b]);
    for (;;) {
      const end = this.pending.indexOf('\r\n');
      if (end < 0) return;
      const words = this.pending.subarray(0, end).toString().split(' ');
      if (words[0] !== 'MSG' && words[0] !== 'HMSG') {
        this.pending = this.pending.subarray(end + 2);
        if (words[0] === 'PING') this.socket.write('PONG\r\n');
        if (words[0] === '-ERR') throw new Error(words.join(' '));
        continue;
      }
      const size = Number(words.at(-1));
      if (this.pending.length < end + 2 + size + 2) return;
      const headers = words[0] === 'HMSG' ? Number(words.at(-2)) : 0;
      const data = Buffer.from(this.pending.subarray(end + 2 + headers, end + 2 + size));
      this.pending = this.pending.subarray(end + 2 + size + 2);
      this.subscriptions.get(words[2])?.(words[1], data);
    }
  }

  close() {
    this.socket.destroy();
  }
}

module.exports = { Game };

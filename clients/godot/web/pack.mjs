/** Packs of Godot 4 (PCK, version 3): a header, files, and a directory of them. */
import { createHash } from "node:crypto";

const HEADER = 112; // bytes
const ALIGNED = 16; // files begin at multiples of it
const RELATIVE = 2; // a flag: places of files count from the first one

/** pack returns a pack of files, which are texts or buffers by their paths without res://. */
export function pack(files) {
  const bodies = [];
  const directory = [uint32(Object.keys(files).length)];
  let at = 0;
  for (const [path, content] of Object.entries(files)) {
    const body = Buffer.from(content);
    const name = Buffer.from(path);
    const length = padded(name.length, 4);
    directory.push(uint32(length), name, Buffer.alloc(length - name.length), uint64(at), uint64(body.length), createHash("md5").update(body).digest(), uint32(0));
    bodies.push(body, Buffer.alloc(padded(body.length, ALIGNED) - body.length));
    at += padded(body.length, ALIGNED);
  }
  const header = Buffer.concat([Buffer.from("GDPC"), ...[3, 4, 6, 0, RELATIVE].map(uint32), uint64(HEADER), uint64(HEADER + at)], HEADER);
  return Buffer.concat([header, ...bodies, ...directory]);
}

const padded = (n, to) => Math.ceil(n / to) * to;

function uint32(n) {
  const b = Buffer.alloc(4);
  b.writeUInt32LE(n);
  return b;
}

function uint64(n) {
  const b = Buffer.alloc(8);
  b.writeBigUInt64LE(BigInt(n));
  return b;
}

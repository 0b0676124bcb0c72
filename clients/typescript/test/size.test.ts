import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

test("the package adds at most 20 KB to a page, and needs nothing of Node", async (t) => {
  const entry = fileURLToPath(new URL("../src/index.js", import.meta.url));
  const out = await build({ entryPoints: [entry], bundle: true, minify: true, format: "esm", platform: "browser", target: "es2022", write: false });
  const code = out.outputFiles[0]!.contents;
  const compressed = gzipSync(code, { level: 9 }).length;
  t.diagnostic(`${code.length} bytes minified, ${compressed} compressed`);
  assert.ok(compressed <= 20_000, `${compressed} bytes`);
});

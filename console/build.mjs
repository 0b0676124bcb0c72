// Builds script and style of the page into a folder, which has index.html and icon.svg: node build.mjs FOLDER
import { build } from "esbuild";

const folder = process.argv[2];
await build({
  entryPoints: { console: "src/main.tsx" },
  outdir: folder,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "inline",
  logLevel: "warning",
});

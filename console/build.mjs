// Builds the page into a folder: node build.mjs FOLDER
import { build } from "esbuild";
import { cp, mkdir } from "node:fs/promises";

const folder = process.argv[2];
await mkdir(folder, { recursive: true });
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
for (const name of ["index.html", "icon.svg"]) await cp(`src/${name}`, `${folder}/${name}`);

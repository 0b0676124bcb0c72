/** Prints what Godot 4 makes of encoded Variants: TestEngine4 of godot/variant runs it. The argument is a file of hex, a line each. */
import { readFileSync } from "node:fs";
import { Game, ported } from "./engine.mjs";

const script = ported("godot/variant/testdata")["reencode.gd"];
const game = await Game.start({ "reencode.gd": script, VARIANTS: readFileSync(process.argv[2]) }, "reencode.gd");
try {
  await game.says(/^exit 0$/m);
  process.stdout.write(game.output);
} finally {
  await game.close();
}

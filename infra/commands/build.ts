import { dirname, join } from "node:path";
import { buildFunctions } from "../build.ts";
import { buildClient } from "../client.ts";
import { type Command, common, print, table } from "../command.ts";
import { configFile, readConfig } from "../config.ts";
import { openSigner } from "../keys.ts";
import { readCatalogue } from "../registry.ts";

export default {
  summary: "Bundles every rule that is on into dist/, ready for npx osls package, and the client's package.",
  options: { config: common.config, output: common.output },

  async run({ options }) {
    const file = options.text("config") ?? configFile;
    const catalogue = await readCatalogue();
    const config = await readConfig(file, catalogue);
    const { publicKey } = await openSigner(join(dirname(file), ".postern"));
    const { bundles, notes } = await buildFunctions(config, catalogue, file, publicKey);
    await buildClient();
    for (const note of notes) process.stderr.write(`${note}\n`);

    const rows = bundles.map(({ name, bytes, hash }) => ({ rule: name, bytes, sha256: hash }));
    if (options.text("output") === "json") print(`${JSON.stringify(rows, null, 2)}\n`);
    else
      print(
        table([
          ["RULE", "KB", "SHA-256"],
          ...rows.map(({ rule, bytes, sha256 }) => [rule, (bytes / 1024).toFixed(1), sha256]),
        ]),
      );
  },
} satisfies Command;

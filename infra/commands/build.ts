import { dirname, join } from "node:path";
import { buildBundles, buildFunctions } from "../build.ts";
import type { Bundle } from "../bundle.ts";
import { buildClient } from "../client.ts";
import { type Command, common, print, table } from "../command.ts";
import { Complaint } from "../complaint.ts";
import { type Config, configFile, readConfig } from "../config.ts";
import { openSigner } from "../keys.ts";
import { among, rulesOption } from "../options.ts";
import { type Listed, readCatalogue } from "../registry.ts";

export default {
  summary: "Bundles every rule that is on into dist/, ready for npx osls package, and the client's package.",
  options: {
    config: common.config,
    to: { type: "string", value: "FOLDER", says: "only the bundles, into there: to be asked by direct invocation" },
    rules: { ...rulesOption, says: "with --to, build only these rules, even if they are off" },
    output: common.output,
  },

  async run({ options }) {
    const file = options.text("config") ?? configFile;
    const catalogue = await readCatalogue();
    const config = await readConfig(file, catalogue);
    const to = options.text("to");
    const rules = options.texts("rules").flatMap((text) => text.split(",").filter(Boolean));
    if (to === undefined && rules.length > 0) throw new Complaint("--rules is for bundles alone, with --to");
    for (const name of rules.filter((name) => !catalogue.some((listed) => listed.name === name)))
      process.stderr.write(`there is no rule "${name}", and no bundle of it\n`);
    const bundles =
      to === undefined ? await buildAll(config, catalogue, file) : await buildBundles(config, catalogue, to, rules);

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

const buildAll = async (config: Config, catalogue: Listed[], file: string): Promise<Bundle[]> => {
  const { publicKey } = await openSigner(join(dirname(file), ".postern"));
  const { bundles, notes } = await buildFunctions(config, catalogue, file, publicKey);
  await buildClient();
  for (const note of notes) process.stderr.write(`${note}\n`);
  return bundles;
};

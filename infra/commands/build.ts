import { readdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { asksOf, bundle } from "../bundle.ts";
import { type Command, common, print, table } from "../command.ts";
import { Complaint } from "../complaint.ts";
import { configFile, readConfig, servedRules, shareOf } from "../config.ts";
import { missingConnections, readConnections } from "../connections.ts";
import { writeDeployment } from "../endpoints.ts";
import { timeoutOf } from "../entry.ts";
import { openSigner } from "../keys.ts";
import { type Listed, readCatalogue } from "../registry.ts";

const folder = fileURLToPath(new URL("../../dist/", import.meta.url));

export default {
  summary: "Bundles every rule that is on into dist/, ready for npx osls package.",
  options: { config: common.config, output: common.output },

  async run({ options }) {
    const file = options.text("config") ?? configFile;
    const catalogue = await readCatalogue();
    const config = await readConfig(file, catalogue);
    const served = servedRules(config, catalogue);
    if (served.length === 0) throw new Complaint("no rule is on; postern.yaml says which are");

    // The longest that any cluster waits for a rule is the least that its function must have.
    const waits = ({ members, ...listed }: Listed) =>
      [...config.clusters.values()].flatMap(({ rules }) =>
        (members ?? [listed]).map(({ name, rule }) => timeoutOf(rule, rules.get(name))),
      );
    const [missing] = missingConnections(config.clusters, catalogue);
    if (missing) throw new Complaint(missing);
    const connections = served.some(asksOf) ? Object.fromEntries(await readConnections(config, file, "aws")) : {};
    const bundles = await Promise.all(
      served.map(async (listed) => {
        const timeoutSeconds = Math.max(...waits(listed));
        const ways = asksOf(listed) ? connections : {};
        return { ...(await bundle(listed, shareOf(config, listed), folder, undefined, ways)), timeoutSeconds };
      }),
    );
    await sweep(bundles.map(({ name }) => name));
    const { publicKey } = await openSigner(join(dirname(file), ".postern"));
    await writeDeployment(bundles, publicKey, folder);

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

/** What was built for rules that are off now goes. */
const sweep = async (names: string[]) => {
  for (const entry of await readdir(folder, { withFileTypes: true }))
    if ((entry.isDirectory() || entry.name.endsWith(".zip")) && !names.includes(entry.name.replace(/\.zip$/, "")))
      await rm(join(folder, entry.name), { recursive: true });
};

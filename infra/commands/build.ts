import { readdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { bundle } from "../bundle.ts";
import { type Command, common, print, table } from "../command.ts";
import { Complaint } from "../complaint.ts";
import { configFile, readConfig, servedRules, shareOf } from "../config.ts";
import { askingRules, readConnections } from "../connections.ts";
import { writeDeployment } from "../endpoints.ts";
import { longestTimeoutOf } from "../entry.ts";
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

    const isOn = ({ name }: Listed) =>
      [...config.clusters.values()].some(({ rules }) => (rules.get(name)?.mode ?? "off") !== "off");
    // The longest that any cluster waits for a rule is the least that its function must have.
    const waits = ({ members, ...listed }: Listed) =>
      [...config.clusters.values()].flatMap(({ rules }) =>
        (members ?? [listed]).map(({ name, rule }) => longestTimeoutOf(rule, rules.get(name))),
      );
    const { ways, faults, notes } = await readConnections(config, catalogue, file, "aws");
    if (faults.length > 0) throw new Complaint(faults.join("\n"));
    const forgetful = served.filter((listed) => keepsLedger(listed) && isOn(listed));
    if (forgetful.length > 0)
      throw new Complaint(
        `${forgetful.map(({ name }) => name).join(", ")} must keep a ledger, which functions in AWS don't have yet; with mode off, the others can be built`,
      );
    for (const note of notes) process.stderr.write(`${note}\n`);
    // Each has the way, and the right to the token, where it asks and nowhere else.
    const waysOf = ({ members, ...listed }: Listed) =>
      [...ways].filter(([name]) => askingRules(members ?? [listed], config.clusters.get(name)).length > 0);
    const bundles = await Promise.all(
      served.map(async (listed) => {
        const timeoutSeconds = Math.max(...waits(listed));
        const own = Object.fromEntries(waysOf(listed));
        return { ...(await bundle(listed, shareOf(config, listed), folder, undefined, own)), timeoutSeconds };
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

const keepsLedger = ({ rule }: Listed) => Object.values(rule.needs ?? {}).some(({ verb }) => verb === "ledger");

/** What was built for rules that are off now goes. */
const sweep = async (names: string[]) => {
  for (const entry of await readdir(folder, { withFileTypes: true }))
    if ((entry.isDirectory() || entry.name.endsWith(".zip")) && !names.includes(entry.name.replace(/\.zip$/, "")))
      await rm(join(folder, entry.name), { recursive: true });
};

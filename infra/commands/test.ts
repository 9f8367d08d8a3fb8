import { spawn } from "node:child_process";
import { once } from "node:events";
import { globSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Command } from "../command.ts";
import { Complaint } from "../complaint.ts";
import { readCatalogue } from "../registry.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

export default {
  summary: "Runs the cases of rules and the laws that every rule obeys.",
  usage: "[RULE…]",
  options: {},

  async run({ words }) {
    const names = (await readCatalogue()).map(({ name }) => name);
    const unknown = words.find((word) => !names.includes(word));
    if (unknown !== undefined) throw new Complaint(`there is no rule "${unknown}"; postern rules lists them`);
    const chosen = words.length > 0 ? words : names;
    const own = chosen.flatMap((name) => globSync(`functions/${name}/**/*.test.ts`, { cwd: root }));
    const env = { ...process.env, POSTERN_RULES: words.join(",") };
    const child = spawn(process.execPath, ["--test", "test/catalogue.test.ts", ...own], {
      cwd: root,
      stdio: "inherit",
      env,
    });
    const [code] = await once(child, "exit");
    return code === 0 ? 0 : 1;
  },
} satisfies Command;

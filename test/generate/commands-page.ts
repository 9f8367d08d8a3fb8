import { readFileSync, writeFileSync } from "node:fs";
import { replaceList } from "#infra/catalogue/generated-lists.ts";
import { describeAllVerbs } from "#infra/main.ts";

const page = new URL("../../docs/reference/commands.md", import.meta.url);

/** Returns docs/reference/commands.md as it is, and with the help of all commands as it is now. */
export const buildCommandsPage = async (): Promise<{ present: string; wanted: string }> => {
  const present = readFileSync(page, "utf8");
  const parts = (await describeAllVerbs()).map(
    ({ verb, help }) => `## ${verb}\n\n\`\`\`text\n${help.trimEnd()}\n\`\`\``,
  );
  return { present, wanted: replaceList(present, "help of the commands", parts.join("\n\n")) };
};

if (import.meta.main) writeFileSync(page, (await buildCommandsPage()).wanted);

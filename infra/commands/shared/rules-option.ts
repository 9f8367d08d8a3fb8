import { existsSync } from "node:fs";
import { join } from "node:path";
import type { CommandOption } from "../../cli/command.ts";
import { isNoFile } from "../../cli/options.ts";
import { packageRoot } from "../../cli/roots.ts";

/**
 * Reports whether a word is the name of a rule or may be a misspelt one: it has such a form and, unless words of the verb
 * stand before it, isn't a file. A rule of the catalogue is one whatever files there are.
 */
const isRuleName = (word: string, hasWords: boolean): boolean =>
  /^[A-Za-z][A-Za-z0-9-]*$/.test(word) &&
  (existsSync(join(packageRoot, "functions", word)) || hasWords || isNoFile(word));

/** An option that names rules; `readList` reads it. */
export const rulesOption = {
  type: "string",
  multiple: true,
  value: "RULE",
  isValue: (word, hasWords) => word.split(",").every((name) => isRuleName(name, hasWords)),
} satisfies Omit<CommandOption, "says">;

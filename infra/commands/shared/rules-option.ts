import { existsSync } from "node:fs";
import { join } from "node:path";
import { functionsFolder } from "../../catalogue/sources.ts";
import type { CommandOption } from "../../cli/command.ts";
import { isNoFile } from "../../cli/options.ts";

/** Reports whether a word is the name of a rule or may be a misspelt one: it has such a form and isn't a file. */
const isRuleName = (word: string): boolean =>
  /^[A-Za-z][A-Za-z0-9-]*$/.test(word) && (existsSync(join(functionsFolder, word)) || isNoFile(word));

/** An option that names rules; `readList` reads it. */
export const rulesOption = {
  type: "string",
  multiple: true,
  value: "RULE",
  isValue: (word) => word.split(",").every(isRuleName),
} satisfies Omit<CommandOption, "says">;

import { existsSync } from "node:fs";
import { join } from "node:path";
import type { CommandOption } from "../../cli/command.ts";
import { isNoFile } from "../../cli/options.ts";
import { packageRoot } from "../../cli/roots.ts";

/**
 * Reports whether a word after `--rules` is the name of a rule, perhaps a misspelt one. It must have the form of a
 * name. A word that is also the path of a file is a name only if the catalogue has this rule, or if words of the
 * command, such as paths, stand before the option.
 */
const isRuleName = (word: string, hasWordsBefore: boolean): boolean =>
  /^[A-Za-z][A-Za-z0-9-]*$/.test(word) &&
  (existsSync(join(packageRoot, "functions", word)) || hasWordsBefore || isNoFile(word));

/** An option that names rules. `readListOption` reads its values. Words of the command may stand before the option. */
export const rulesOption = {
  type: "string",
  multiple: true,
  value: "RULE",
  isValue: (word, hasWordsBefore) => word.split(",").every((name) => isRuleName(name, hasWordsBefore)),
} satisfies Omit<CommandOption, "says">;

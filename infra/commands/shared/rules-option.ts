import { existsSync } from "node:fs";
import { join } from "node:path";
import type { CommandOption } from "../../cli/command.ts";
import { isNoFile } from "../../cli/options.ts";
import { packageRoot } from "../../cli/roots.ts";

/**
 * Reports whether a word after `--rules` is the name of a rule, perhaps a misspelt one. In `check --rules RULE k8s`, a
 * word k8s is the first path instead, if such a file or folder exists and no rule of Postern has this name. In
 * `check lib --rules RULE k8s`, it is a name, because all paths stand before the option.
 */
const isRuleName = (word: string, hasPathsBefore: boolean): boolean =>
  /^[A-Za-z][A-Za-z0-9-]*$/.test(word) &&
  (existsSync(join(packageRoot, "functions", word)) || hasPathsBefore || isNoFile(word));

/** An option that names rules, for `readListOption`. The first word after it that is no rule name is a path. */
export const rulesOption = {
  type: "string",
  multiple: true,
  value: "RULE",
  // A name that is also a file or folder is a rule only if Postern's own rules have it, or paths stand before --rules.
  isValue: (word, hasPathsBefore) => word.split(",").every((name) => isRuleName(name, hasPathsBefore)),
} satisfies Omit<CommandOption, "says">;

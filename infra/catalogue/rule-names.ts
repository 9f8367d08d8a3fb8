import { createHash } from "node:crypto";
import { Complaint } from "../cli/complaint.ts";
import { formatDidYouMean, normalizeRuleName } from "../cli/did-you-mean.ts";

/** The names that rules and groups may have. They become parts of URLs, and of the names of functions and entries. */
export const ruleNamePattern = /^[a-z]([a-z0-9-]{0,40}[a-z0-9])?$/;
export const isRuleName = (name: string) => ruleNamePattern.test(name);

export const requireValidRuleName = (name: string, place = `functions/${name}`): void => {
  if (isRuleName(name)) return;
  throw new Complaint(
    `${place} is no name for a rule: it must begin with a letter, have at most 42 lower-case letters, digits and hyphens, and no hyphen last`,
  );
};

/** Returns the beginning of a rule's logical ids in CloudFormation, made as osls does: `a-b` becomes `ADashb`. */
export const toLogicalId = (name: string) => name.replace(/^./, (first) => first.toUpperCase()).replaceAll("-", "Dash");

/** Returns the rule of a logical id with an ending, for instance `a-b` for `ADashbRole`; undefined for other ids. */
export const findRuleOfLogicalId = (id: string, ending: string): string | undefined => {
  const name = id.slice(0, -ending.length);
  const rule = name.slice(0, 1).toLowerCase() + name.slice(1).replaceAll("Dash", "-");
  return isRuleName(rule) && `${toLogicalId(rule)}${ending}` === id ? rule : undefined;
};

/** The most characters that Lambda accepts in a function's name. */
export const maxFunctionName = 64;

/**
 * Returns the name of a rule's Lambda function. If the name would be too long, its end is replaced by a part of the
 * rule's hash. Such a function has the rule's full name in the environment variable POSTERN_RULE.
 */
export const buildFunctionName = (stage: string, rule: string): string => {
  const name = `postern-${stage}-${rule}`;
  if (name.length <= maxFunctionName) return name;
  const hash = createHash("sha256").update(rule).digest("hex").slice(0, 6);
  return `${name.slice(0, maxFunctionName - hash.length - 1).replace(/-+$/, "")}-${hash}`;
};

/** Returns the name of the DynamoDB table with the ledger of a stage. */
export const buildLedgerTableName = (stage: string): string => `postern-${stage}`;

/** Finds a rule by its name or by the name of its upstream plugin, for instance AlwaysPullImages. */
export const findRuleByNameOrPlugin = (text: string, rules: readonly string[]): string | undefined => {
  if (rules.includes(text)) return text;
  return /^[A-Z][A-Za-z]*$/.test(text)
    ? rules.find((name) => normalizeRuleName(name) === normalizeRuleName(text))
    : undefined;
};

/** Returns the rules for names that users have written, which may be names of plugins. Throws for an unknown name. */
export const resolveRuleNames = (names: readonly string[], rules: readonly string[]): string[] =>
  names.map((name) => {
    const found = findRuleByNameOrPlugin(name, rules);
    if (found === undefined) throw new Complaint(describeUnknownRule(name, rules));
    return found;
  });

const describeUnknownRule = (text: string, rules: readonly string[]): string =>
  `there is no rule "${text}"; ${formatDidYouMean(text, rules)}postern rules lists them`;

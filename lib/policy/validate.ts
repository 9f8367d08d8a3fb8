import { isMap } from "../json.ts";
import { blamed, rulesOf } from "./policy-failures.ts";
import { type Book, validating } from "./policy-index.ts";
import { resolve } from "./references/references.ts";
import { verdictOf } from "./scripts.ts";
import { targets } from "./selectors.ts";
import type { Condition, Reach, Subject, ValidatePolicy, ValidateRule } from "./types.ts";
import { isHit } from "./values/conditions.ts";
import { compares, constantOf } from "./values/constants.ts";
import { shown } from "./values/texts.ts";

export interface Validation {
  /** The first denial; the policy's reason may be empty. */
  denied?: { policy: ValidatePolicy; rule: number; reason: string };
  /** The policies that concern the request, up to the first denial. */
  matched: { policy: ValidatePolicy; rejected: boolean }[];
}

/** Evaluates the policies that concern a request, in their order, until one denies it. */
export const validate = async (book: Book, subject: Subject, reach: Reach): Promise<Validation> => {
  const matched: Validation["matched"] = [];
  if (subject.operation === "CONNECT") return { matched };
  for (const policy of validating(book, subject)) {
    const denied = await denialBy(policy, subject, reach);
    matched.push({ policy, rejected: denied !== undefined });
    if (denied !== undefined) return { denied: { policy, ...denied }, matched };
  }
  return { matched };
};

const denialBy = async (policy: ValidatePolicy, subject: Subject, reach: Reach) => {
  for (const [rule, given] of rulesOf(policy, "validateRules").entries()) {
    try {
      const reason = await reasonAgainst(given, subject, reach);
      if (reason !== undefined) return { rule, reason };
    } catch (error) {
      throw blamed(policy, "validateRules", rule, error);
    }
  }
  return undefined;
};

const reasonAgainst = async (
  { targetOperations, template, cue }: ValidateRule,
  subject: Subject,
  reach: Reach,
): Promise<string | undefined> => {
  if (!targets(targetOperations, subject.operation)) return undefined;
  if (template !== undefined && template !== null) {
    if (template.type !== "condition") throw new Error(`template.type must be condition, not ${shown(template.type)}`);
    if (!isMap(template.condition)) throw new Error("template.condition must be an object");
    const { affectMode, message } = template.condition;
    if (!["reject", "allow", "", null, undefined].includes(affectMode))
      throw new Error(`affectMode must be reject or allow, not ${shown(affectMode)}`);
    const isRefused = (await holds(template.condition, subject, reach)) !== (affectMode === "allow");
    if (isRefused) return typeof message === "string" ? message : "";
  }
  if (cue === undefined || cue === null || cue === "") return undefined;
  if (typeof cue !== "string") throw new Error("cue must be a string");
  const { valid, reason } = await verdictOf(cue, subject, reach);
  return valid ? undefined : reason;
};

const holds = async (condition: Condition, subject: Subject, reach: Reach): Promise<boolean> => {
  const { dataRef, valueRef, value } = condition;
  if (!isMap(dataRef)) throw new Error("dataRef must say where the data stands");
  const data = resolve(dataRef, subject, reach);
  const comparison = compares(condition) ? valueFor({ valueRef, value }, subject, reach) : undefined;
  // Both are resolved in parallel. If both fail, the error of data is thrown; this handles the other rejection.
  comparison?.catch(() => {});
  return isHit(condition, await data, await comparison);
};

const valueFor = async (
  { valueRef, value }: Pick<Condition, "valueRef" | "value">,
  subject: Subject,
  reach: Reach,
): Promise<{ value: unknown } | undefined> => {
  if (isMap(valueRef)) return resolve(valueRef, subject, reach);
  const constant = constantOf(value);
  if (constant === undefined) throw new Error("value is missing, and valueRef too; one of them is to be compared with");
  return constant;
};

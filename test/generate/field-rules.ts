// Writes what real API servers require of fields to infra/apiserver/validation: fields.json, older-fields.json and
// immutable.json. `npm run field-rules` runs it; with --older it only compares older minors with fields.json.
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isMap, isSame, type JsonMap } from "#lib/json.ts";
import type { FieldRules } from "../../infra/apiserver/validation/fields.ts";
import { packageRoot } from "../../infra/cli/roots.ts";
import { minors } from "../control-plane/binaries.ts";
import { bootServer, dropWrongRules, findWrongRules, learnFieldRules, printRules } from "./field-rule-learning.ts";
import { type ChangedField, changeFields, findCommonImmutableFields } from "./immutable-fields.ts";

/** Returns the JSON merge patch that makes `before` of `after`. */
const buildMergePatch = (after: JsonMap, before: JsonMap): JsonMap =>
  Object.fromEntries(
    Object.keys({ ...after, ...before }).flatMap((key) => {
      const [now, then] = [after[key], before[key]];
      if (isMap(now) && isMap(then)) {
        const patch = buildMergePatch(now, then);
        return Object.keys(patch).length > 0 ? [[key, patch]] : [];
      }
      return isSame(now, then) ? [] : [[key, then ?? null]];
    }),
  );

const folder = join(packageRoot, "infra/apiserver/validation");

const print = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;

/** Writes the rules of the newest minor, and those of its rules that older minors don't have. */
const writeRules = async (): Promise<void> => {
  const [newest = "", ...others] = minors.toReversed();
  const learned = process.argv.includes("--older")
    ? JSON.parse(readFileSync(join(folder, "fields.json"), "utf8"))
    : await learnFieldRules(newest);
  await writeFile(join(folder, "fields.json"), printRules(learned));
  let next: FieldRules = JSON.parse(printRules(learned));
  const older: JsonMap = {};
  for (const minor of others) {
    const rules = structuredClone(next);
    dropWrongRules(rules, minor, (await findWrongRules(rules, minor)).answered);
    const kept: FieldRules = JSON.parse(printRules(rules));
    older[minor] = buildMergePatch(next as unknown as JsonMap, kept as unknown as JsonMap);
    next = kept;
    await writeFile(join(folder, "older-fields.json"), print(older));
  }
};

/** Writes the fields that can't be changed in any minor. */
const writeImmutableFields = async (): Promise<void> => {
  const changed: ChangedField[][] = [];
  for (const minor of minors) {
    const { admin, stop } = await bootServer(minor);
    changed.push(await changeFields(admin).finally(stop));
  }
  await writeFile(join(folder, "immutable.json"), print(findCommonImmutableFields(changed)));
};

await writeRules();
await writeImmutableFields();

import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import { createTestFolder } from "../../test/folders.ts";
import { readRows } from "../../test/rows.ts";
import { findImpurities } from "./rule-purity.ts";
import { toRuleFolder } from "./sources.ts";

interface PurityRow {
  what: string;
  code?: string; // the statements of the function in rule.ts; absent if the row has whole files instead
  impurities: string[]; // what the check must find, each as `FILE:LINE SENTENCE`
}

describe("a rule that uses", () => {
  for (const { what, code, impurities, ...files } of readRows<PurityRow[]>(import.meta.filename))
    it(`${what} is ${impurities.length === 0 ? "pure" : "not pure"}`, async () => {
      const folder = await createTestFolder();
      const source = `type Context = { now: Date };

export default async (_: object, { now }: Context) => {
${code}
};
`;
      for (const [file, text] of Object.entries({ ...(code && { "rule.ts": source }), ...files })) {
        await mkdir(dirname(join(folder, file)), { recursive: true });
        await writeFile(join(folder, file), text);
      }
      const found = await findImpurities(toRuleFolder(folder, "a"));
      const prefix = toRuleFolder(folder, "a").place;
      assert.deepEqual(
        found.map(({ file, line, sentence }) => `${file.slice(prefix.length + 1)}:${line} ${sentence}`),
        impurities,
      );
    });
});

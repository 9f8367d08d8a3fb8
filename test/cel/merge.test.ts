import { deepEqual, equal, ok } from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { parse } from "yaml";
import { newestMinor } from "../control-plane/binaries.ts";
import { needs } from "../parts.ts";
import { compareMerges, evaluatePatches } from "./merge.ts";
import { startEvaluator, type UpstreamEvaluator } from "./upstream.ts";

// The same with more pairs: node infra/node.js test/cel/merge.ts --pairs 20000 --seed 1
const pairs = 600;
// The seed is fixed: a rare difference must not fail an unrelated change. For other pairs, change --seed above.
const seed = 1;

describe("lib/admission-policies", await needs("CEL evaluator", "API server"), () => {
  let evaluator: UpstreamEvaluator;
  before(async () => {
    evaluator = await startEvaluator(newestMinor);
  });
  after(() => evaluator?.stop());

  it(`lib/admission-policies merges ${pairs} generated patches as kube-apiserver's packages do`, async () => {
    const { values, errors, knownDifferences, differences } = await compareMerges(evaluator, { pairs, seed });
    deepEqual(differences, []);
    ok(values > pairs / 3 && errors > pairs / 6 && knownDifferences < pairs / 50, `${values} values, ${errors} errors`);
  });

  it("lib/admission-policies has the results of kube-apiserver's packages in its table of expressions", async () => {
    const table = new URL("../../lib/admission-policies/mutation.test.yaml", import.meta.url);
    const rows: { expression: string; becomes?: object; refused?: string }[] = parse(readFileSync(table, "utf8"));
    const pod = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "p", labels: { l: "m" }, finalizers: ["f"] },
      spec: { containers: [{ name: "c", image: "i" }] },
    };
    const texts = rows.map(({ expression }) => expression);
    const answers = await evaluatePatches(evaluator, pod, texts);
    for (const [index, { value, error }] of answers.entries()) {
      const { becomes, refused, expression } = rows[index] ?? {};
      const start = "error applying patch: failed to convert patch object to typed object: ";
      equal(error, refused === undefined ? undefined : `${start}${refused}`, expression);
      // Pods have empty members that the table leaves out.
      if (error === undefined) deepEqual(dropEmptyMaps(value), { ...pod, ...becomes }, expression);
    }
  });
});

const dropEmptyMaps = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value, (_, member) => (JSON.stringify(member) === "{}" ? undefined : member)));

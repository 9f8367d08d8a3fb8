import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { computePatch } from "#lib/core/patch.ts";
import { applyFixes } from "../../infra/check/fixes/fix.ts";
import { formatYamlDocuments, formatYamlFlow, formatYamlLines } from "../../infra/diff/yaml-lines.ts";
import { parseManifests } from "../../infra/manifests/manifests.ts";
import { readByKubectl } from "../kubectl/kubectl.ts";
import { needs } from "../parts.ts";
import { yamlTexts, yamlValues } from "../yaml-texts.ts";

// Each generated text is written as a value and as a key; there are a tenth as many generated lists and maps. With
// POSTERN_TEXTS=20000, there are 20000 texts.

const count = Number(process.env.POSTERN_TEXTS ?? 1000);

const head = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "written" } };

describe("kubectl reads the YAML that Postern writes", await needs("kubectl"), () => {
  const texts = fc.sample(yamlTexts, count);
  const values = [Object.fromEntries(texts.map((text) => [text, text])), texts, ...fc.sample(yamlValues, count / 10)];
  const objects = values.map((data) => ({ ...head, data }));

  it("kubectl reads Postern's YAML in block style, which manifests have", async () =>
    assert.deepEqual(await readByKubectl(formatYamlDocuments(objects)), objects));

  it("kubectl reads Postern's YAML in flow style, with brackets and braces", async () => {
    const documents = values.map((data) => `${formatYamlDocuments([head])}data: ${formatYamlFlow(data)}\n`);
    assert.deepEqual(await readByKubectl(documents.join("---\n")), objects);
  });

  it("kubectl reads a file in which Postern has replaced a value and added one", async () => {
    const inputs = fc.record({
      old: yamlValues,
      now: yamlValues,
      step: fc.constantFrom(2, 4),
      hasUnindentedLists: fc.boolean(),
    });
    const fixes = fc.sample(inputs, count / 10).flatMap(({ old, now, ...indentation }) => {
      const before = { ...head, same: [old], data: { old } };
      const after = { ...head, same: [old], data: { now, old: now } };
      const text = `${formatYamlLines(before, indentation).join("\n")}\n`;
      const [manifest] = parseManifests({ name: "a.yaml", text }).manifests;
      assert.ok(manifest);
      const fixed = applyFixes(text, [{ manifest, patch: computePatch(before, after, ""), after }]);
      // A file with a key of more than 1024 characters may be left as it is.
      const hasLongKey = JSON.stringify([before, after]).includes("long key");
      assert.ok("text" in fixed || hasLongKey, text);
      return "text" in fixed ? { after, text: fixed.text } : [];
    });
    assert.deepEqual(
      await readByKubectl(fixes.map(({ text }) => text).join("---\n")),
      fixes.map(({ after }) => after),
    );
  });
});

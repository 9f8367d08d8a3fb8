import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { it } from "node:test";
import { fileURLToPath } from "node:url";
import { knownMinors, supportedClusters } from "../infra/cli/minors.ts";
import { isFit, minorShape } from "../infra/cli/shape.ts";
import { describeMinorOutOfRange, newestKubernetes, oldestKubernetes } from "../lib/since.ts";
import { minors } from "./control-plane/binaries.ts";

it("the known minors of Kubernetes are those whose API servers tests compare", () => {
  assert.deepEqual([oldestKubernetes, newestKubernetes], [minors.at(0), minors.at(-1)]);
});

it("the message about an unknown minor names the minor that is assumed instead", () => {
  for (const minor of [undefined, ...minors]) assert.equal(describeMinorOutOfRange(minor), undefined);
  assert.equal(describeMinorOutOfRange("1.99"), `Kubernetes 1.99 isn't known here; ${newestKubernetes} is assumed`);
  assert.equal(describeMinorOutOfRange("1.9"), `Kubernetes 1.9 isn't known here; ${oldestKubernetes} is assumed`);
});

it("the README and the pages state the same supported minors, and postern.yaml can have only known ones", async () => {
  for (const page of ["README.md", "docs/reference/kubernetes-versions.md", "docs/reference/configuration.md"]) {
    const text = await readFile(new URL(`../${page}`, import.meta.url), "utf8");
    assert.ok(text.replace(/\s+/g, " ").includes(supportedClusters), `${page} has: ${supportedClusters}`);
  }
  for (const minor of minors) assert.ok(isFit(minorShape, minor), minor);
  const older = `1.${Number(oldestKubernetes.slice(2)) - 1}`;
  assert.ok(!isFit(minorShape, older), older);
});

it("each page's range of minors that begins with the oldest known minor ends with the newest minor", async () => {
  const root = fileURLToPath(new URL("..", import.meta.url));
  const pages = globSync(["*.md", "{docs,functions,infra,lib,test}/**/*.md"], {
    cwd: root,
    exclude: ["**/node_modules/**", "CHANGELOG.md"],
  });
  // "on in 1.33 to 1.35" is about a feature, and may end earlier.
  const range = new RegExp(`(?<!\\bon in )\\b${RegExp.escape(oldestKubernetes)} to 1\\.\\d+`, "g");
  const found = await Promise.all(
    pages.map(async (page) => {
      const text = (await readFile(`${root}/${page}`, "utf8")).replace(/\s+/g, " ");
      return [...text.matchAll(range)].map(([range]) => `${page}: ${range}`);
    }),
  );
  assert.ok(found.flat().length > 5);
  assert.deepEqual(
    found.flat().filter((place) => !place.endsWith(`: ${knownMinors}`)),
    [],
  );
});

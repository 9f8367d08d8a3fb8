import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { createTestFolder } from "../../../test/folders.ts";
import type { DeployedObject } from "../../clusters/api.ts";
import { listFilesOfOtherClusters, readWrittenEntries, writeClusterFiles } from "./written-files.ts";

const place = await createTestFolder();
const openFolder = () => mkdtemp(join(place, "files-"));
const head = "# Written by postern deploy --write.\n";
const configuration = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n";
const manifests: DeployedObject[] = [
  { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", metadata: { name: "postern:a" } },
  {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: { name: "postern" },
    webhooks: [{ name: "a", clientConfig: { url: "https://x/{cluster}.{key}/a/validate" } }],
  },
];

describe("the files of --write", () => {
  for (const [keyPlaceholder, url] of [
    [undefined, "https://x/prod.%key%/a/validate"],
    ["{{ required `no key` .Values.key }}", "https://x/prod.{{ required `no key` .Values.key }}/a/validate"],
    ["$&$$1", "https://x/prod.$&$$1/a/validate"],
  ] as const)
    it(`have ${keyPlaceholder ?? "%key%, which makes the URL invalid,"} in place of the key`, async () => {
      const write = await openFolder();
      await writeClusterFiles({ write, keyPlaceholder }, "prod", manifests);
      const text = await readFile(join(write, "prod.entries.yaml"), "utf8");
      assert.ok(text.includes(`    url: ${url}\n`) || text.includes(`    url: "${url}"\n`), text);
      assert.deepEqual(await readWrittenEntries(write, "prod"), [{ name: "a", clientConfig: { url } }]);
    });

  it("--write always writes three files, even if there are no objects for some of the files", async () => {
    const write = await openFolder();
    await writeClusterFiles({ write }, "prod", manifests);
    assert.deepEqual(await readdir(write), ["prod.entries.yaml", "prod.policies.yaml", "prod.roles.yaml"]);
    assert.match(await readFile(join(write, "prod.roles.yaml"), "utf8"), /^# .*\napiVersion: .*\nkind: ClusterRole\n/);
    assert.equal(await readFile(join(write, "prod.policies.yaml"), "utf8"), head);
  });

  for (const part of ["roles", "policies", "entries"])
    it(`are refused if Postern has not written the file with the ${part}`, async () => {
      const write = await openFolder();
      await writeFile(join(write, `prod.${part}.yaml`), configuration);
      const message = new RegExp(`prod\\.${part}\\.yaml would be replaced, but it doesn't begin with "# Written by `);
      await assert.rejects(readWrittenEntries(write, "prod"), { message });
    });

  it("the files of --write are reported if postern.yaml no longer names their cluster", async () => {
    const write = await openFolder();
    for (const name of ["gone", "prod"]) await writeClusterFiles({ write }, name, [], ["entries"]);
    for (const name of ["own.entries.yaml", "gone.notes.yaml", "README.md"]) await writeFile(join(write, name), "");
    const config = { clusters: new Map([["prod", {}]]) } as Parameters<typeof listFilesOfOtherClusters>[0]["config"];
    assert.deepEqual(await listFilesOfOtherClusters({ write, config }), [join(write, "gone.entries.yaml")]);
  });
});

describe("the entries that an earlier deployment wrote", () => {
  it("entries are read from all YAML documents of the file; without a file, there are none", async () => {
    const folder = await openFolder();
    const documents = ["a", "b"].map((name) => `${configuration}webhooks: [{ name: ${name} }]\n`);
    await writeFile(join(folder, "prod.entries.yaml"), `${head}${documents.join("---\n")}`);
    const entries = await readWrittenEntries(folder, "prod");
    assert.deepEqual(
      entries.map(({ name }) => name),
      ["a", "b"],
    );
    assert.deepEqual(await readWrittenEntries(folder, "other"), []);
  });

  it("the entries of an earlier deployment are refused if their file is no YAML", async () => {
    const folder = await openFolder();
    const text = `${configuration}webhooks: [{ name: a }]\n---\n${configuration}webhooks: [{ name: b }\n`;
    await writeFile(join(folder, "broken.entries.yaml"), `${head}${text}`);
    await assert.rejects(readWrittenEntries(folder, "broken"), { message: /broken\.entries\.yaml:\d is no YAML: / });
  });
});

import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { describe, it } from "node:test";
import { createTestFolder } from "../../test/folders.ts";
import { getEntriesFile, readWrittenEntries } from "./targets.ts";

const folder = await createTestFolder();
const configuration = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n";

describe("the entries that an earlier deployment wrote", () => {
  it("are those of all documents; there are none without a file", async () => {
    const documents = ["a", "b"].map((name) => `${configuration}webhooks: [{ name: ${name} }]\n`);
    await writeFile(getEntriesFile(folder, "prod"), documents.join("---\n"));
    const entries = await readWrittenEntries(folder, "prod");
    assert.deepEqual(
      entries.map(({ name }) => name),
      ["a", "b"],
    );
    assert.deepEqual(await readWrittenEntries(folder, "other"), []);
  });

  it("are refused if their file is no YAML", async () => {
    const file = getEntriesFile(folder, "broken");
    await writeFile(file, `${configuration}webhooks: [{ name: a }]\n---\n${configuration}webhooks: [{ name: b }\n`);
    await assert.rejects(readWrittenEntries(folder, "broken"), (error: Error) => {
      assert.match(error.message, /broken\.entries\.yaml:\d is no YAML: /);
      return true;
    });
  });
});

import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { minors, newestMinor } from "../../infra/parity/control-plane/binaries.ts";
import { buildTypeFiles, readOpenApiDocument, typesFolder } from "../../infra/parity/openapi-types.ts";
import { needs } from "../parts.ts";

// lib/kubernetes has the types of the newest minor that has a folder.
const options =
  newestMinor === minors.at(-1)
    ? await needs("API server")
    : { skip: `tests still run with Kubernetes ${newestMinor}` };

describe("lib/kubernetes", options, () => {
  it("has the types that the newest API server publishes; if not, npm run kubernetes-types writes them", async () => {
    const published = buildTypeFiles(await readOpenApiDocument());
    const files = globSync("*/*.ts", { cwd: typesFolder });
    assert.deepEqual(files.sort(), [...published.keys()].sort());
    const differing = await Promise.all(
      files.map(async (file) =>
        (await readFile(join(typesFolder, file), "utf8")) === published.get(file) ? [] : file,
      ),
    );
    assert.deepEqual(differing.flat(), []);
  });
});

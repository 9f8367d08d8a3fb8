import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { buildTypeFiles, readOpenApiDocument, typesFolder } from "../../infra/parity/openapi-types.ts";
import { needs } from "../parts.ts";

describe("lib/kubernetes", await needs("API server"), () => {
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
